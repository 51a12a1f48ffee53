// Package verbs is the provider for RDMA networks: InfiniBand, and RoCE by a network card or by the
// kernel's soft-RoCE (rdma_rxe). It speaks to libibverbs, which it opens at run time: the same program
// runs where the library, a device or an active port is missing, and Open then says which of them is.
//
// An endpoint is two reliable connected (RC) queue pairs. The data pair carries the user's writes. The
// control pair carries a few empty messages: that this end is connected, that it closes, and a
// keep-alive, because a queue pair with nothing but receives posted never learns that its peer died.
//
//	Post ─▶ chain of ibv_send_wr ─▶ data QP ──────────▶ peer's data QP ─▶ peer's CQ ─▶ Poll
//	keeper goroutine ─▶ control QP (hello, probe, bye) ─▶ peer's control QP ─▶ peer's keeper
//
// A write that is posted while the peer still connects waits in the endpoint: a queue pair drops what
// comes before it is ready, and the sender's network card would notice only by its timer.
//
// See docs/rdma.md for options, limits, faults and measurements.
package verbs
