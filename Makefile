# Everything runs in .venv, which every target sets up by itself and leaves alone while settings.ini does not change.
SHELL := /bin/bash
BIN   := .venv/bin
READY := .venv/.ready
PROCESSES ?= 4
TEST_ENV := OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 JUPYTER_PLATFORM_DIRS=1 PYTHONWARNINGS=ignore::DeprecationWarning

.PHONY: demo test check lab test-lab pages readme site mutants gpu help
help:
	@echo 'make demo    write toy videos, co-train two views, retrieve, and print one table (runs/demo/report.html)'
	@echo 'make test    everything that checks the project'
	@echo 'make check   the quick part of it: formatted, clean, exported, README, import order, ruff, types, size of outputs; lists old results'
	@echo 'make lab     open the notebooks in JupyterLab, at their start page'
	@echo 'make test-lab run every page in JupyterLab and a headless Chromium, and move its widgets (_lab/ has pictures)'
	@echo 'make pages   execute all notebooks and store their outputs'
	@echo 'make readme  write README.md from nbs/index.ipynb, and the tables of results/README.md from its files'
	@echo 'make site    write the course to _docs/, with search and API: open _docs/index.html (PAGES=… for some pages)'
	@echo 'make gpu     on a machine with a GPU: run all that waits for one, and write results/ (again: go on; MINUTES=25 UCF101=… JHMDB=…)'
	@echo 'make mutants break every exported line of losses, memory, loop and run folder once; a test must fail each time'

$(READY): settings.ini setup.py
	@test -x $(BIN)/python || python3 -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/vssl-nb demo --out runs/demo

check: $(READY)
	$(TEST_ENV) $(BIN)/python -m pytest -q tests/test_house.py tests/test_layout.py tests/test_results_page.py
	$(BIN)/python tests/house.py stale

# more processes than cores: some wait for what they have killed or started
test: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(TEST_ENV) $(BIN)/python -m pytest -q --numprocesses $(PROCESSES) \
		--dist loadfile --no-loadscope-reorder --durations 20 \
		--override-ini tmp_path_retention_policy=failed tests

lab: $(READY) # PASSIVE: kernels side by side do not burn each other's cores while they wait
	@$(BIN)/jupyter trust nbs/*.ipynb nbs/*/*.ipynb >/dev/null # sliders move before a cell has run
	@mkdir -p .venv/share/jupyter/lab/settings # whole pages are laid out, so that a link to a place arrives there
	@# code is wrapped, so that a narrow window does not cut it
	@echo '{"@jupyterlab/notebook-extension:tracker": {"windowingMode": "none", "codeCellConfig": {"lineWrap": true}}}' \
		> .venv/share/jupyter/lab/settings/overrides.json
	OMP_WAIT_POLICY=PASSIVE $(BIN)/jupyter lab --LabApp.default_url=/lab/tree/nbs/map.ipynb

test-lab: $(READY)
	$(BIN)/python tests/lab.py $(if $(READER),--reader) $(if $(LOOK),--look) $(PAGES)

pages: $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/house.py pages $(PAGES)
	$(MAKE) readme

readme: $(READY)
	$(BIN)/python tests/house.py readme
	$(BIN)/python tests/house.py results

site: $(READY)
	$(BIN)/python docs/make_site.py $(PAGES)

mutants: $(READY)
	$(TEST_ENV) IN_TEST=1 $(BIN)/python tests/mutants.py --pytest tests/test_optimizers.py

gpu: $(READY)
	$(BIN)/python benchmarks/gpu.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(UCF101),--ucf101 $(UCF101)) $(if $(JHMDB),--jhmdb $(JHMDB))
