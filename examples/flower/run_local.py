"""Run the app on this machine, simulated or with a process for each site.

python run_local.py [--simulate]
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from make_sites import make_sites

from skslot.flower import LocalFederation

APP = Path(__file__).parent

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulate", action="store_true", help="use Ray")
    simulate = parser.parse_args().simulate
    with TemporaryDirectory() as folder:
        sites = Path(folder) / "sites"
        names = make_sites(sites)
        run_config = {"simulation-data": str(sites)} if simulate else {}
        with LocalFederation(folder, simulation=len(names) * simulate) as federation:
            if not simulate:
                for name in names:
                    federation.start_node(name, {"folder": str(sites / name)})
            print(federation.run(APP, run_config))
        print("files:", *sorted(p.name for p in federation.output_dir.glob("*/*")))
        print("processes left:", federation.processes())
