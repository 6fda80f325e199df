"""The report page and the code on it, to be filled in."""

from string import Template

PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 58rem; margin: 0 auto;
  padding: 1rem; }
h1 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { font-size: 1.1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; font-weight: 600; }
th, td { padding: .3rem .8rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th:first-child { text-align: left; }
figure { margin: 1rem 0; }
img { display: block; max-width: 100%; height: auto; background: white;
  border-radius: .4rem; padding: .4rem; box-sizing: border-box; }
figcaption { margin-top: .5rem; }
pre { padding: 1rem; border-radius: .4rem; background: var(--soft);
  user-select: all; }
footer { margin-top: 3rem; font-size: .85rem; }
@media (max-width: 40rem) { img { max-width: none; width: 32rem; }
  th, td { padding: .3rem .5rem; } }
@media print { body { max-width: none; } figure, table { break-inside: avoid; }
  h2 { break-after: avoid; } pre { white-space: pre-wrap; } }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p class="lead">$summary</p>
$sections
</main>
<footer>Written by skslot $version.</footer>
</body>
</html>
""")

CODE = Template("""\
import sklearn
from sklearn.pipeline import Pipeline
from skslot import FedCGSClassifier, FederatedOTAligner
from skslot.experiments import FeatureSet

sklearn.set_config(enable_metadata_routing=True)
data = FeatureSet.from_file($path).training_rows()
model = Pipeline(
    [
        ("align", FederatedOTAligner(tau=$tau)),
        ("classify", FedCGSClassifier("within")),
    ]
)
model.fit(data.X, data.y, client_ids=data.client_ids)
""")

CODE_WITHOUT_LABELS = Template("""\
import sklearn
from sklearn.pipeline import Pipeline
from skslot import FederatedOTAligner
from skslot.experiments import FeatureSet

sklearn.set_config(enable_metadata_routing=True)
data = FeatureSet.from_file($path).training_rows()
model = Pipeline([("align", FederatedOTAligner(tau=$tau))])
aligned = model.fit_transform(data.X, client_ids=data.client_ids)
""")
