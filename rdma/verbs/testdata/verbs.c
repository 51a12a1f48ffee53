// A libibverbs of two devices whose queue pairs meet in this process, for tests. It delivers a request when it
// is posted, or as soon as its peer is ready for it; or later, by a queue pair that lags.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { RESET, INIT, RTR, RTS, ERR = 6 };
enum { OK, LOCAL_PROT = 4, FLUSHED = 5, REMOTE_ACCESS = 10, RETRY_EXCEEDED = 12 };
enum { WRITE, WRITE_IMM, SEND, SEND_IMM, SIGNALED = 2, INLINE = 8, RECV = 128 };

struct sge { uint64_t addr; uint32_t len, lkey; };
struct send_wr { uint64_t id; struct send_wr *next; struct sge *sg; int n; uint32_t op, flags, imm; uint64_t addr; uint32_t rkey; char pad[76]; };
struct recv_wr { uint64_t id; struct recv_wr *next; struct sge *sg; int n; };
struct wc { uint64_t id; uint32_t status, op, vendor, len, imm, qpn, src, flags; char pad[8]; };
struct gid_entry { uint8_t gid[16]; uint32_t index, port, type, ifindex; };

struct pd { int unused; };
struct channel { char pad[8]; int fd, in; };
struct cq { char pad[28]; int cqe; struct channel *channel; int armed, lags; struct wc *wcs; int n, room; };
struct mr { char pad[36]; uint32_t lkey, rkey; void *pd; uint64_t addr, len; char *at; void *mapped; size_t mapped_len; struct mr *next; };
struct pending { struct send_wr wr; struct sge sg; char *copy; uint32_t len; int bad; uint64_t due; struct pending *next; };
struct qp {
	char pad[52];
	uint32_t num, state, dest;
	void *pd;
	struct cq *send, *recv;
	uint64_t *recvs;
	int nrecv, room;
	uint32_t lag; // a request is delivered up to so many polls after it was posted
	struct pending *first, **last;
	struct qp *next;
};
struct qp_cap { uint32_t send, recv, send_sge, recv_sge, inl; };
struct qp_init { void *context; struct cq *send, *recv; void *srq; struct qp_cap cap; uint32_t type; int all; };
struct qp_attr { uint32_t state, cur, mtu, mig, qkey, rq_psn, sq_psn, dest, access; };
struct context { char pad[96]; void *poll, *notify; char pad2[96]; void *post_send, *post_recv; char pad3[44]; int async_fd; };

_Static_assert(__builtin_offsetof(struct context, post_send) == 208, "post_send");
_Static_assert(__builtin_offsetof(struct context, async_fd) == 268, "async_fd");
_Static_assert(sizeof(struct send_wr) == 128 && sizeof(struct wc) == 48, "requests");

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct qp *qps;
static struct mr *mrs;
static uint32_t numbers = 100, keys = 7000;
static char *devices[] = {"fake0", "fake1", NULL};
static uint32_t fault_qp; // fails at its fault_left-th request from now on: 0 before anything has landed, 1 when the bytes
static int fault_left, fault_kind; // have, 2 when it has completed at the peer
static uint64_t polls, seed = 1; // of queues, of all; for lags
static int dmabuf_errno;
static uint64_t (*peer_memory)(uint64_t);

static void complete(struct cq *cq, struct wc w) {
	if (cq->n == cq->room) cq->wcs = realloc(cq->wcs, (cq->room = 2 * cq->room + 64) * sizeof w);
	cq->wcs[cq->n++] = w;
	if (cq->armed && cq->channel) {
		cq->armed = 0;
		if (write(cq->channel->in, &cq, sizeof cq) < 0) abort();
	}
}

static struct qp *find(uint32_t num) {
	for (struct qp *q = qps; q; q = q->next)
		if (q->num == num) return q;
	return NULL;
}

// known ends the process of who uses a queue pair that there is not. The lock is held.
static void known(struct qp *q) {
	struct qp *p = qps;
	while (p && p != q) p = p->next;
	if (!p) abort();
}

static char *region(void *pd, uint32_t key, int remote, uint64_t addr, uint64_t len) {
	for (struct mr *m = mrs; m; m = m->next)
		if (m->pd == pd && (remote ? m->rkey : m->lkey) == key && addr >= m->addr && addr - m->addr <= m->len && len <= m->len - (addr - m->addr))
			return m->at + (addr - m->addr);
	return NULL;
}

static void done(struct qp *q, struct pending *p, int status) {
	if (status || p->wr.flags & SIGNALED)
		complete(q->send, (struct wc){.id = p->wr.id, .status = status, .op = p->wr.op == SEND_IMM || p->wr.op == SEND ? 0 : 1, .qpn = q->num});
	free(p->copy), free(p);
}

static void fail(struct qp *q) {
	if (q->state == ERR) return;
	q->state = ERR;
	for (struct pending *p = q->first, *next; p; p = next) next = p->next, done(q, p, FLUSHED);
	q->first = NULL, q->last = &q->first;
	for (int i = 0; i < q->nrecv; i++) complete(q->recv, (struct wc){.id = q->recvs[i], .status = FLUSHED, .op = RECV, .qpn = q->num});
	q->nrecv = 0;
}

// advance delivers what a queue pair has pending, as far as its peer is ready.
static void advance(struct qp *q) {
	while (q->first && q->state == RTS) {
		struct pending *p = q->first;
		if (p->due > polls) return;
		struct qp *peer = find(q->dest);
		int status = p->bad, broken = 0;
		if (!status && (!peer || peer->state == ERR)) status = RETRY_EXCEEDED;
		if (!status && peer->state < RTR) return;
		if (!status && p->wr.op != WRITE && !peer->nrecv) return;
		int fault = q->num == fault_qp && --fault_left == 0;
		if (fault && fault_kind == 0) status = RETRY_EXCEEDED;
		if (!status && p->wr.op <= WRITE_IMM && p->len) {
			char *at = region(peer->pd, p->wr.rkey, 1, p->wr.addr, p->len);
			char *from = p->copy ? p->copy : region(q->pd, p->sg.lkey, 0, p->sg.addr, p->len); // cards read it late
			if (!at) status = REMOTE_ACCESS, broken = 1;
			else if (!from) status = LOCAL_PROT;
			else memcpy(at, from, p->len);
		}
		if (fault && fault_kind == 1 && !status) status = RETRY_EXCEEDED;
		if (!status && p->wr.op != WRITE) {
			uint64_t id = peer->recvs[0];
			memmove(peer->recvs, peer->recvs + 1, --peer->nrecv * sizeof id);
			complete(peer->recv, (struct wc){.id = id, .op = RECV + (p->wr.op == WRITE_IMM), .len = p->len, .imm = p->wr.imm, .qpn = peer->num, .flags = 2});
		}
		if (fault && !status) status = RETRY_EXCEEDED;
		q->first = p->next;
		if (!q->first) q->last = &q->first;
		done(q, p, status);
		if (status) fail(q);
		if (broken) fail(peer);
	}
}

static void advance_all(void) {
	for (struct qp *q = qps; q; q = q->next) advance(q);
}

static int post_send(struct qp *q, struct send_wr *wr, struct send_wr **bad) {
	pthread_mutex_lock(&lock);
	for (; wr; wr = wr->next) {
		struct pending *p = calloc(1, sizeof *p);
		p->wr = *wr;
		if (q->lag) p->due = polls + ((seed = seed * 6364136223846793005u + 1442695040888963407u) >> 33) % q->lag;
		if (wr->n > 1) abort();
		if (wr->n) {
			p->sg = *wr->sg;
			p->len = p->sg.len;
			if (!(wr->flags & INLINE)) {
				if (!region(q->pd, p->sg.lkey, 0, p->sg.addr, p->sg.len)) p->bad = LOCAL_PROT;
			} else {
				p->copy = malloc(p->len);
				memcpy(p->copy, (char *)p->sg.addr, p->len);
			}
		}
		if (q->state == ERR) { done(q, p, FLUSHED); continue; }
		*q->last = p, q->last = &p->next;
	}
	advance(q);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int post_recv(struct qp *q, struct recv_wr *wr, struct recv_wr **bad) {
	pthread_mutex_lock(&lock);
	known(q);
	for (; wr; wr = wr->next) {
		if (q->state == ERR) { complete(q->recv, (struct wc){.id = wr->id, .status = FLUSHED, .op = RECV, .qpn = q->num}); continue; }
		if (q->nrecv == q->room) q->recvs = realloc(q->recvs, (q->room = 2 * q->room + 64) * sizeof *q->recvs);
		q->recvs[q->nrecv++] = wr->id;
	}
	advance_all();
	pthread_mutex_unlock(&lock);
	return 0;
}

static int poll_cq(struct cq *cq, int n, struct wc *out) {
	pthread_mutex_lock(&lock);
	polls++;
	if (cq->lags) advance_all();
	if (n > cq->n) n = cq->n;
	if (n) {
		memcpy(out, cq->wcs, n * sizeof *out);
		memmove(cq->wcs, cq->wcs + n, (cq->n -= n) * sizeof *out);
	}
	pthread_mutex_unlock(&lock);
	return n;
}

static int notify(struct cq *cq, int solicited) {
	pthread_mutex_lock(&lock);
	cq->armed = 1;
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT void *ibv_get_device_list(int *n) { *n = 2; return devices; }
EXPORT void ibv_free_device_list(void *list) {}
EXPORT const char *ibv_get_device_name(char *device) { return device; }

EXPORT struct context *ibv_open_device(void *device) {
	struct context *c = calloc(1, sizeof *c);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK)) abort();
	c->poll = poll_cq, c->notify = notify, c->post_send = post_send, c->post_recv = post_recv, c->async_fd = fds[0];
	*(int *)c->pad = fds[1];
	c->pad[8] = device == devices[1];
	return c;
}

EXPORT int ibv_close_device(struct context *c) { close(c->async_fd), close(*(int *)c->pad), free(c); return 0; }

EXPORT int ibv_query_device(void *c, char *a) {
	int max[7] = {1000, 4096, 0, 1, 1, 100, 1 << 20};
	memset(a, 0, 232);
	memcpy(a + 108, max, 8);            // max_qp, max_qp_wr
	memcpy(a + 120, max + 3, 16);       // max_sge, max_sge_rd, max_cq, max_cqe
	*(int *)(a + 136) = 1 << 20;        // max_mr
	a[227] = 1;                         // phys_port_cnt
	return 0;
}

EXPORT int ibv_query_port(void *c, uint8_t port, uint32_t *a) {
	memset(a, 0, 48);
	a[0] = 4, a[1] = 5, a[2] = 5, a[3] = 2, a[5] = 1 << 30;
	((uint8_t *)a)[46] = 2; // link_layer: Ethernet
	return 0;
}

EXPORT long _ibv_query_gid_table(void *c, struct gid_entry *e, size_t n, uint32_t flags, size_t size) {
	*e = (struct gid_entry){{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3 + ((char *)c)[8]}, 0, 1, 2, 0};
	return 1;
}

EXPORT int ibv_get_async_event(void *c, void *e) { return -1; }
EXPORT void ibv_ack_async_event(void *e) {}
EXPORT void *ibv_alloc_pd(void *c) { return calloc(1, sizeof(struct pd)); }
EXPORT int ibv_dealloc_pd(void *pd) { free(pd); return 0; }

static struct mr *add(void *pd, uint64_t addr, uint64_t len, char *at, void *mapped, size_t mapped_len) {
	struct mr *m = calloc(1, sizeof *m);
	pthread_mutex_lock(&lock);
	m->pd = pd, m->lkey = ++keys, m->rkey = ++keys, m->addr = addr, m->len = len, m->at = at, m->mapped = mapped, m->mapped_len = mapped_len;
	m->next = mrs, mrs = m;
	pthread_mutex_unlock(&lock);
	return m;
}

// readable tells whether the process has memory at an address.
static int readable(void *at) {
	int fds[2];
	if (pipe2(fds, O_CLOEXEC)) abort();
	int ok = write(fds[1], at, 1) == 1;
	close(fds[0]), close(fds[1]);
	return ok;
}

EXPORT struct mr *ibv_reg_mr(void *pd, void *at, size_t len, int access) {
	if (readable(at)) return add(pd, (uint64_t)at, len, at, NULL, 0);
	uint64_t there = peer_memory ? peer_memory((uint64_t)at) : 0;
	if (there) return add(pd, (uint64_t)at, len, (char *)there, NULL, 0);
	errno = EFAULT;
	return NULL;
}

EXPORT struct mr *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access) {
	if (dmabuf_errno) {
		errno = dmabuf_errno;
		return NULL;
	}
	size_t size = offset + len;
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return at == MAP_FAILED ? NULL : add(pd, iova, len, (char *)at + offset, at, size);
}

EXPORT int ibv_dereg_mr(struct mr *m) {
	pthread_mutex_lock(&lock);
	struct mr **p = &mrs;
	while (*p != m) p = &(*p)->next;
	*p = m->next;
	pthread_mutex_unlock(&lock);
	if (m->mapped) munmap(m->mapped, m->mapped_len);
	free(m);
	return 0;
}

EXPORT void *ibv_create_comp_channel(void *c) {
	struct channel *ch = calloc(1, sizeof *ch);
	int fds[2];
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK)) abort();
	ch->fd = fds[0], ch->in = fds[1];
	return ch;
}

EXPORT int ibv_destroy_comp_channel(struct channel *ch) { close(ch->fd), close(ch->in), free(ch); return 0; }

EXPORT int ibv_get_cq_event(struct channel *ch, struct cq **cq, void **context) {
	return read(ch->fd, cq, sizeof *cq) == sizeof *cq ? 0 : -1;
}

EXPORT void ibv_ack_cq_events(void *cq, unsigned n) {}

EXPORT struct cq *ibv_create_cq(void *c, int cqe, void *context, struct channel *ch, int vector) {
	struct cq *cq = calloc(1, sizeof *cq);
	cq->cqe = cqe, cq->channel = ch;
	return cq;
}

EXPORT int ibv_resize_cq(struct cq *cq, int cqe) { cq->cqe = cqe; return 0; }
EXPORT int ibv_destroy_cq(struct cq *cq) { free(cq->wcs), free(cq); return 0; }

EXPORT struct qp *ibv_create_qp(void *pd, struct qp_init *init) {
	struct qp *q = calloc(1, sizeof *q);
	pthread_mutex_lock(&lock);
	q->num = ++numbers, q->pd = pd, q->send = init->send, q->recv = init->recv, q->last = &q->first;
	q->next = qps, qps = q;
	pthread_mutex_unlock(&lock);
	return q;
}

EXPORT int ibv_modify_qp(struct qp *q, struct qp_attr *a, int mask) {
	pthread_mutex_lock(&lock);
	known(q);
	if (mask & 1 << 20) q->dest = a->dest;
	if (mask & 1) {
		if (a->state == ERR) fail(q);
		if (a->state == RESET) {
			for (struct pending *p = q->first, *next; p; p = next) next = p->next, free(p->copy), free(p);
			q->first = NULL, q->last = &q->first, q->nrecv = 0;
		}
		q->state = a->state;
	}
	advance_all();
	pthread_mutex_unlock(&lock);
	return 0;
}

EXPORT int ibv_destroy_qp(struct qp *q) {
	pthread_mutex_lock(&lock);
	struct qp **p = &qps;
	while (*p != q) p = &(*p)->next;
	*p = q->next;
	for (struct pending *p = q->first, *next; p; p = next) next = p->next, free(p->copy), free(p);
	free(q->recvs), free(q);
	advance_all();
	pthread_mutex_unlock(&lock);
	return 0;
}

// What follows is for the tests: how dma-bufs are refused (0: not at all), and who translates accelerators' addresses.
EXPORT void fake_dmabuf(int error) { dmabuf_errno = error; }
EXPORT void fake_peer_memory(void *translate) { peer_memory = translate; }
// And a queue pair that fails.
EXPORT void fake_fault(uint32_t qp, int left, int kind) {
	pthread_mutex_lock(&lock);
	fault_qp = qp, fault_left = left, fault_kind = kind;
	pthread_mutex_unlock(&lock);
}
// And a queue pair that delivers late.
EXPORT void fake_lag(uint32_t qp, uint32_t lag, uint64_t from) {
	pthread_mutex_lock(&lock);
	struct qp *q = find(qp);
	q->lag = lag, q->send->lags = 1, q->recv->lags = 1;
	seed = from * 2 + 1;
	pthread_mutex_unlock(&lock);
}
EXPORT long fake_regions(void) {
	pthread_mutex_lock(&lock);
	long n = 0;
	for (struct mr *m = mrs; m; m = m->next) n++;
	pthread_mutex_unlock(&lock);
	return n;
}
