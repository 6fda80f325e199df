# What CI runs, one target each; .ci/run makes fresh environments for them.
.PHONY: test test-slow coverage lint docs bench mutations test-cpus test-min

test:  # after: pip install ".[all,tests]"
	pytest -n auto

test-slow:  # real processes, examples, audits
	pytest -n auto -m slow

coverage:  # make test, a third slower
	pytest -n auto --cov

lint:
	ruff check .
	ruff format --check .
	codespell

docs:  # after: pip install ".[docs]"
	sphinx-build -W docs docs/_build

bench:  # after: pip install ".[bench]"
	python examples/benchmarks/bench_alignment.py

mutations:  # tests must fail for each of some mistakes in the mathematics
	python tests/mutations.py

# Rounding as on older CPUs: OpenBLAS and NumPy can be told to do without instructions
# that this one has. Only what computes or prints numbers. torch does not use OpenBLAS,
# and the contract of classifiers is about ids, classes and files.
NUMERICAL = tests/geometry tests/statistics tests/alignment \
	tests/classifiers tests/exchange tests/test_constant_features.py \
	tests/test_numbers.py tests/test_parallel.py skslot docs \
	--ignore tests/classifiers/contract --ignore tests/classifiers/fedavg
INSTRUCTIONS = "import numpy; \
	print(*numpy.show_config('dicts')['SIMD Extensions']['found'])"
test-cpus:
	OPENBLAS_CORETYPE=Haswell pytest -q -n auto $(NUMERICAL)
	OPENBLAS_CORETYPE=Prescott \
		NPY_DISABLE_CPU_FEATURES="$$(python -c $(INSTRUCTIONS))" \
		pytest -q -n auto $(NUMERICAL)

# The core with the oldest versions that pyproject.toml allows, and the oldest Python,
# for which there are wheels of them. Left out is what shows numbers as text, and says
# nothing new about versions: pages and docstrings. Old packages use names that their
# newer dependencies deprecate, which is not our doing.
test-min:
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	uv venv --quiet --python 3.11 "$$folder" && \
	uv pip install --python "$$folder" --resolution lowest-direct ".[tests]" && \
	"$$folder/bin/pytest" tests -n auto -W ignore::DeprecationWarning
