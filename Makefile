# The only door: people and CI call the same targets. `make help` lists them.

OUT ?= target/bufconf
CLUSTER ?= embedded
IMPLEMENTATION ?= reference
CARGO ?= cargo
BUFCONF = target/release/bufconf
# the documented scenarios, and those that keep them honest
DEMO = zero-node-baseline percentage-follows-scale survives-consolidation clean-up refill no-churn gate-off
# the documented ones
DEMO_KIND = zero-node-baseline percentage-follows-scale survives-consolidation clean-up
NEXTEST_PROFILE ?= $(if $(CI),ci,default)

.DEFAULT_GOAL := help
.PHONY: help demo demo-kind kind-node test test-kind divergences check fmt clippy deny generate conformance clean tools

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(BUFCONF) ## the documented scenarios on an embedded cluster: a table and target/bufconf/index.html
	$(BUFCONF) run $(DEMO) --out $(OUT)

demo-kind: $(BUFCONF) kind-node ## the same four on a kind cluster: real kubelets, real pods
	$(BUFCONF) run --cluster kind $(DEMO_KIND) --out $(OUT)

kind-node: ## what kind needs: a Docker daemon, the command kind, a node image (pulled, else built from packages)
	@ci/kind-node/get

test-kind: kind-node tools ## the scenario tests on a kind cluster, one test a file; what the machine is too small for is ignored
	BUFCONF_CLUSTER=kind BUFCONF_OUT=$(CURDIR)/$(OUT)/kind $(CARGO) nextest run --workspace --locked --profile $(NEXTEST_PROFILE) -E 'package(bufconf) & binary(scenarios)'

# its exit code says that there are differences, which is what it is for
divergences: $(BUFCONF) ## runs the reference and Karpenter, and writes in what they differ to scenarios/DIVERGENCES.md
	$(BUFCONF) run --out $(OUT)/reference
	$(BUFCONF) run --implementation ci/implementations/karpenter-kwok.yaml --out $(OUT)/karpenter || test $$? -eq 1
	{ cat scenarios/DIVERGENCES.head.md; $(BUFCONF) report diff $(OUT)/reference/report.json $(OUT)/karpenter/report.json || test $$? -eq 1; } > scenarios/DIVERGENCES.md

conformance: $(BUFCONF) ## the whole suite: CLUSTER=embedded|kind|existing IMPLEMENTATION=reference|FILE
	$(BUFCONF) run --cluster $(CLUSTER) --implementation $(IMPLEMENTATION) --out $(OUT)

# cargo decides whether there is anything to build
.PHONY: $(BUFCONF)
$(BUFCONF):
	$(CARGO) build --release --locked --package bufconf

test: tools ## unit, property, snapshot and scenario tests (one nextest test a scenario file), then the doc tests
	$(CARGO) nextest run --workspace --locked --profile $(NEXTEST_PROFILE)
	$(CARGO) test --workspace --locked --doc --quiet

check: fmt clippy deny ## formatting, lints, licences, dependency rules; the freshness of generated files is a test

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: tools
	ci/checks/dependencies
	$(CARGO) deny check --hide-inclusion-graph bans licenses sources

generate: tools ## writes the generated files: CRDs, JSON Schemas
	BUFCONF_GENERATE=1 $(CARGO) nextest run --workspace --locked -E 'test(fresh)'

tools: ## gets the test runner where it is missing
	@ci/install

clean: ## removes what was built; the cache of control-plane binaries stays
	$(CARGO) clean
