# What CI runs, one target each; .ci/run makes fresh environments for them.
.PHONY: test coverage lint docs bench test-min

test:  # after: pip install ".[all,tests]"
	pytest -n auto

coverage:  # the same, a third slower
	pytest -n auto --cov

lint:
	ruff check .
	ruff format --check .
	codespell

docs:  # after: pip install ".[docs]"
	sphinx-build -W docs docs/_build

bench:  # after: pip install ".[bench]"
	python examples/benchmarks/bench_alignment.py

# The core with the oldest versions that pyproject.toml allows, and the oldest Python,
# for which there are wheels of them. Left out is what takes long or shows numbers as
# text, and says nothing new about versions: examples, pages and docstrings. Old
# packages use names that their newer dependencies deprecate, which is not our doing.
test-min:
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	uv venv --quiet --python 3.11 "$$folder" && \
	uv pip install --python "$$folder" --resolution lowest-direct ".[tests]" && \
	"$$folder/bin/pytest" tests -n auto --ignore tests/test_examples.py \
		-W ignore::DeprecationWarning
