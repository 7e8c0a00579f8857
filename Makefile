# SPDX-License-Identifier: Apache-2.0
# Short names for the scripts; scripts/build says how each build is configured.

PREFIX ?= /usr/local
LIBDIR ?= lib
DESTDIR ?=
FUZZ_SECONDS ?= 60

RELEASE = scripts/build release --prefix="$(abspath $(PREFIX))" --libdir="$(LIBDIR)"

.PHONY: help deps quickstart build check check-all check-gpu bench bench-peers soak fuzz install \
  uninstall wheel fmt fmt-check clean

help: ## show this list (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install the missing Debian packages, also those for the tests
	@scripts/install-deps

quickstart: ## install what is missing, build, and train a first model
	@scripts/install-deps build
	@scripts/build release
	@build/release/examples/quickstart
	@echo "(until make install, manta is build/release/src/cmd/manta; KILL=1 make quickstart kills a worker)"

build: deps ## compile with all warnings, in build/plain
	@scripts/build plain

check: deps ## build and test everything; the last line has the totals
	@scripts/check

check-all: deps ## check, and the long tests
	@scripts/check --all

check-gpu: deps ## only the tests that need a GPU; without one they are skipped
	@scripts/check --only gpu

soak: deps ## only the long tests
	@scripts/check --only soak

fuzz: deps ## fuzz every reader for FUZZ_SECONDS (60); new inputs are kept in build/fuzz-corpus
	@scripts/fuzz --seconds $(FUZZ_SECONDS) --corpus build/fuzz-corpus

bench: deps ## measure; the results go to standard output
	@scripts/build release
	@scripts/pyenv --install
	@bench/run

bench-peers: ## measure the same jobs in other systems
	@scripts/install-deps bench
	@scripts/build release
	@scripts/pyenv
	@bench/peers/run

install: ## install under PREFIX (/usr/local), below DESTDIR if given
	@scripts/install-deps build
	@$(RELEASE)
	@scripts/meson install -C build/release --quiet --no-rebuild $(if $(DESTDIR),--destdir "$(abspath $(DESTDIR))")
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" = 0 ]; then ldconfig; fi
	@echo "installed in $(DESTDIR)$(abspath $(PREFIX))"

uninstall: ## remove what the last install put there
	@ninja -C build/release uninstall >/dev/null
	@if [ "$$(id -u)" = 0 ]; then ldconfig; fi

wheel: ## build the Python wheel for other machines in build/dist, check it and run it
	@scripts/install-deps build
	@scripts/wheel

fmt: ## format all C files
	@scripts/fmt

fmt-check: ## name the C files that are not formatted
	@scripts/fmt --check

clean: ## remove build/
	rm -rf build
