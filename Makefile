# Verbs of the project. `make` alone lists them.

GO    ?= go
FLAGS ?=
SKIP  ?= ^$$

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: run
run: ## the main job: 4 ranks average real gradients
	$(GO) run ./examples/allreduce

.PHONY: test
test: ## all tests of the main module, no hardware needed
	$(GO) test $(FLAGS) ./...

.PHONY: race
race: ## the same under the race detector
	$(GO) test -race $(FLAGS) ./...

.PHONY: prove
prove: ## verify every algorithm for every size to 64, and samples to 4096; explore the large models of the agreement
	GCCL_PROVE=1 $(GO) test -count=1 -timeout 60m -run Prove ./ring ./tree ./direct
	GCCL_PROVE=1 $(GO) test -count=1 -timeout 60m -run 'Model|Reductions' ./internal/agree

.PHONY: table
table: ## every collective, algorithm, size, type, operation and count against the reference (long)
	$(GO) test -count=1 -v -timeout 3h -run 'TestTable$$' ./collective -full

.PHONY: test-rdma
test-rdma: ## the verbs provider over the kernel's soft-RoCE, in one VM and across two (docs/rdma.md)
	rdma/verbs/lab/test all
	CGO_ENABLED=1 $(GO) vet -tags verbslayout ./rdma/verbs/internal/ibv

.PHONY: test-hosts
test-hosts: ## ranks on hosts of their own: network namespaces with 1 Gbit/s links (root)
	$(GO) test -count=1 -v -timeout 15m -run Hosts -skip '$(SKIP)' ./collective -hosts

.PHONY: test-launchers
test-launchers: ## the example under real srun, sbatch and mpirun, and ranks that meet in a real etcd (root, Debian)
	.ci/install-launchers
	$(GO) test -count=1 -v -timeout 5m -run Launchers ./examples/allreduce -launchers
	$(GO) test -count=1 -run Under ./bootstrap
	cd bootstrap/etcd && $(GO) test -count=1 ./...

.PHONY: chaos
chaos: ## faults at every step of every algorithm, ranks killed and stopped at random moments (FLAGS="-campaign 1000")
	$(GO) test -count=1 -timeout 60m -v -run 'Kill|Campaign|Chaos|Storm|Mismatch|Bounded|Stopped' ./collective -thorough -chaos -hosts $(FLAGS)

.PHONY: lint
lint: ## gofmt, go vet for all platforms, generated files
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "gofmt:" $$out; exit 1; }
	$(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) build ./...
	$(GO) vet -tags noverbs ./...
	$(GO) vet -tags cuda ./...
	$(GO) vet -tags purego ./tensor ./internal/kernel
	cd bootstrap/etcd && $(GO) vet ./...
	$(MAKE) -s generated

.PHONY: generated
generated: ## regenerate the assembly and fail if it differs from what is committed
	cd internal/kernel && $(GO) generate ./...
	git diff --exit-code -- internal/kernel

.PHONY: fuzz
fuzz: ## run every fuzz target for a short time each
	@for f in $$(grep -rl 'func Fuzz' --include='*_test.go' .); do \
	  for t in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' $$f); do \
	    echo "$$t in $$(dirname $$f)"; $(GO) test -run '^$$' -fuzz "^$$t$$" -fuzztime 10s ./$$(dirname $$f) || exit 1; \
	  done; done

.PHONY: bench
bench: ## collectives of 2 and 4 ranks on this host, in nccl-tests' columns
	$(GO) build -o bin/gccl ./cmd/gccl
	for n in 2 4; do bin/gccl perf allreduce --ranks $$n -b 8 -e 64M -f 8; done

.PHONY: bench-peers
bench-peers: ## gccl against OpenMPI, MPICH and Gloo on this host (about 45 min); writes docs/performance.md
	$(GO) run ./cmd/benchpeers $(FLAGS)
