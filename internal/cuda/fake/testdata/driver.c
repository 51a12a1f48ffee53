// A CUDA driver of host memory, for tests. Device memory is a file that the process has mapped twice: once
// without access, at the device address, so that nobody reads it past the driver, and once for the driver. A dma-buf
// of it is the file.
//
// Streams are lists of work that runs only when somebody asks for an event behind it, one piece a query: as
// late as a device could be. That finds missing waits, which a driver that copies at once would hide.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEVICES = 2, SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
       INVALID_CONTEXT = 201, NOT_READY = 600, ILLEGAL_ADDRESS = 700, NOT_SUPPORTED = 801 };

typedef int result;

// Calls that can be made to fail; fake.go has the same numbers.
enum { F_NONE, F_INIT, F_RETAIN, F_REGISTER, F_TOHOST, F_TODEVICE, F_QUERY, F_HANDLE, F_SYNCMEMOPS, F_RUN, F_STREAM, F_ANY, F_COUNT };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { long after; int code; } faults[F_COUNT];
static int devices = DEVICES, dmabuf = 1, rdma = 1, initialized;
static long copies, pins, streams, events, retained, strays;

struct context { int device, sticky, lost; }; // lost: how often; work from before is dropped
static struct context contexts[DEVICES];

struct memory { uint64_t at, size; char *shadow; int fd, device; struct memory *next; };
static struct memory *memories;

struct pin { uint64_t at, size; struct pin *next; };
static struct pin *pinned;

enum { TO_HOST, TO_DEVICE, RECORD, WAIT, ADD };
struct event { long recorded, done; struct stream *in; struct context *c; };
struct work { int kind; uint64_t dst, src, n; struct event *event; struct stream *in; long mark; int lost; float value; struct work *next; };
struct stream { struct context *c; struct work *first, **last; };
static struct stream defaults[DEVICES];

static __thread struct context *stack[8];
static __thread int depth;

// hit counts a call and returns the error that it must fail with, or 0.
static result hit(int what) {
	if (faults[what].code && faults[what].after-- <= 0) return faults[what].code;
	return SUCCESS;
}

static struct context *current(void) { return depth ? stack[depth - 1] : NULL; }

#define ENTER(what) \
	pthread_mutex_lock(&lock); \
	result r = initialized ? hit(F_ANY) : NOT_INITIALIZED; \
	if (!r) r = hit(what);

#define NEED_CONTEXT \
	if (!r && !current()) r = INVALID_CONTEXT; \
	if (!r) r = current()->sticky;

#define LEAVE pthread_mutex_unlock(&lock); return r;

static struct memory *find(uint64_t at, uint64_t n) {
	for (struct memory *m = memories; m; m = m->next)
		if (at >= m->at && at - m->at < m->size && n <= m->size - (at - m->at)) return m;
	return NULL;
}

static int is_pinned(uint64_t at, uint64_t n) {
	for (struct pin *p = pinned; p; p = p->next)
		if (at >= p->at && at - p->at < p->size && n <= p->size - (at - p->at)) return 1;
	return 0;
}

static struct stream *stream_of(void *h) {
	if (h) return h;
	struct stream *s = &defaults[current()->device];
	if (!s->c) s->c = current(), s->last = &s->first;
	return s;
}

static void append(struct stream *s, struct work w) {
	struct work *copy = malloc(sizeof w);
	*copy = w;
	copy->next = NULL;
	copy->lost = s->c->lost;
	if (!s->last) s->last = &s->first;
	*s->last = copy;
	s->last = &copy->next;
}

// step runs the first piece of work of a stream; 0 if there is none.
static int step(struct stream *s) {
	struct work *w = s->first;
	if (!w) return 0;
	int dropped = w->lost != s->c->lost;
	result r = !dropped && w->kind < RECORD && s->c->device == 0 ? hit(F_RUN) : SUCCESS;
	struct memory *m;
	if (!dropped) switch (w->kind) {
	case TO_HOST:
		if (!r && !((m = find(w->src, w->n)) && is_pinned(w->dst, w->n))) r = ILLEGAL_ADDRESS, strays++;
		if (!r) memcpy((void *)w->dst, m->shadow + (w->src - m->at), w->n), copies++;
		break;
	case TO_DEVICE:
		if (!r && !((m = find(w->dst, w->n)) && is_pinned(w->src, w->n))) r = ILLEGAL_ADDRESS, strays++;
		if (!r) memcpy(m->shadow + (w->dst - m->at), (void *)w->src, w->n), copies++;
		break;
	case RECORD:
		if (w->event->done < w->mark) w->event->done = w->mark;
		break;
	case WAIT:
		if (w->event->done < w->mark) return step(w->in);
		break;
	case ADD:
		if (!r && !(m = find(w->dst, w->n))) r = ILLEGAL_ADDRESS;
		if (!r) for (uint64_t i = 0; i < w->n / 4; i++) ((float *)(m->shadow + (w->dst - m->at)))[i] += w->value;
		break;
	}
	if (r) s->c->sticky = r, s->c->lost++;
	s->first = w->next;
	if (!s->first) s->last = &s->first;
	free(w);
	return 1;
}

EXPORT result cuInit(unsigned flags) {
	pthread_mutex_lock(&lock);
	result r = hit(F_INIT);
	if (!r) initialized = 1;
	LEAVE
}

EXPORT result cuDeviceGetCount(int *n) { ENTER(F_NONE) if (!r) *n = devices; LEAVE }

EXPORT result cuDeviceGet(int *device, int ordinal) {
	ENTER(F_NONE)
	if (!r && (ordinal < 0 || ordinal >= devices)) r = INVALID_DEVICE;
	if (!r) *device = ordinal;
	LEAVE
}

EXPORT result cuDeviceGetName(char *name, int n, int device) {
	ENTER(F_NONE)
	if (!r) strncpy(name, device ? "Fake Two" : "Fake One", n);
	LEAVE
}

EXPORT result cuDeviceGetAttribute(int *value, int attribute, int device) {
	ENTER(F_NONE)
	if (!r) *value = attribute == 124 ? dmabuf : attribute == 116 ? rdma : 0;
	LEAVE
}

EXPORT result cuDevicePrimaryCtxRetain(void **context, int device) {
	ENTER(F_RETAIN)
	if (!r) contexts[device].device = device, *context = &contexts[device], retained++;
	LEAVE
}

EXPORT result cuDevicePrimaryCtxRelease_v2(int device) { ENTER(F_NONE) if (!r) retained--; LEAVE }

EXPORT result cuCtxPushCurrent_v2(void *context) {
	ENTER(F_NONE)
	if (!r && depth == 8) r = INVALID_CONTEXT;
	if (!r) stack[depth++] = context;
	LEAVE
}

EXPORT result cuCtxPopCurrent_v2(void **context) {
	pthread_mutex_lock(&lock);
	result r = depth ? SUCCESS : INVALID_CONTEXT;
	if (!r) *context = stack[--depth];
	LEAVE
}

EXPORT result cuPointerGetAttribute(void *data, int attribute, uint64_t at) {
	ENTER(F_NONE)
	struct memory *m = find(at, 1);
	int host = is_pinned(at, 1);
	if (!r && !m && !host) r = INVALID_VALUE;
	if (!r && attribute == 2) *(unsigned *)data = m ? 2 : 1;
	if (!r && attribute == 9) *(int *)data = m ? m->device : 0;
	LEAVE
}

EXPORT result cuPointerSetAttribute(const void *value, int attribute, uint64_t at) {
	ENTER(F_SYNCMEMOPS)
	NEED_CONTEXT
	if (!r && (attribute != 6 || *(unsigned *)value != 1 || !find(at, 1))) r = INVALID_VALUE;
	LEAVE
}

EXPORT result cuMemHostRegister_v2(void *at, size_t n, unsigned flags) {
	ENTER(F_REGISTER)
	NEED_CONTEXT
	if (!r && (!n || flags != 1 || is_pinned((uint64_t)at, 1))) r = INVALID_VALUE;
	if (!r) {
		struct pin *p = malloc(sizeof *p);
		*p = (struct pin){(uint64_t)at, n, pinned};
		pinned = p, pins++;
	}
	LEAVE
}

EXPORT result cuMemHostUnregister(void *at) {
	ENTER(F_NONE)
	if (!r && !current()) r = INVALID_CONTEXT;
	struct pin **p = &pinned;
	while (*p && (*p)->at != (uint64_t)at) p = &(*p)->next;
	if (!r && !*p) r = INVALID_VALUE;
	if (!r) {
		struct pin *gone = *p;
		*p = gone->next, pins--;
		free(gone);
	}
	LEAVE
}

static result enqueue(result r, void *stream, struct work w) {
	if (!r && stream_of(stream)->c != current()) r = INVALID_CONTEXT;
	if (!r) append(stream_of(stream), w);
	return r;
}

EXPORT result cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t n, void *stream) {
	ENTER(F_TOHOST)
	NEED_CONTEXT
	r = enqueue(r, stream, (struct work){.kind = TO_HOST, .dst = (uint64_t)dst, .src = src, .n = n});
	LEAVE
}

EXPORT result cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t n, void *stream) {
	ENTER(F_TODEVICE)
	NEED_CONTEXT
	r = enqueue(r, stream, (struct work){.kind = TO_DEVICE, .dst = dst, .src = (uint64_t)src, .n = n});
	LEAVE
}

EXPORT result cuStreamCreate(void **stream, unsigned flags) {
	ENTER(F_STREAM)
	NEED_CONTEXT
	if (!r) {
		struct stream *s = calloc(1, sizeof *s);
		s->c = current(), s->last = &s->first, *stream = s, streams++;
	}
	LEAVE
}

EXPORT result cuStreamDestroy_v2(struct stream *s) {
	ENTER(F_NONE)
	if (!r) {
		while (step(s));
		free(s), streams--;
	}
	LEAVE
}

EXPORT result cuStreamWaitEvent(void *stream, struct event *e, unsigned flags) {
	ENTER(F_NONE)
	NEED_CONTEXT
	if (!r && e->recorded) r = enqueue(r, stream, (struct work){.kind = WAIT, .event = e, .in = e->in, .mark = e->recorded});
	LEAVE
}

EXPORT result cuEventCreate(void **event, unsigned flags) {
	ENTER(F_NONE)
	NEED_CONTEXT
	if (!r) {
		struct event *e = calloc(1, sizeof *e);
		e->c = current(), *event = e, events++;
	}
	LEAVE
}

EXPORT result cuEventDestroy_v2(struct event *e) { ENTER(F_NONE) if (!r) events--; LEAVE } // kept: work may lead to it

EXPORT result cuEventRecord(struct event *e, void *stream) {
	ENTER(F_NONE)
	NEED_CONTEXT
	if (!r) {
		e->in = stream_of(stream);
		r = enqueue(r, stream, (struct work){.kind = RECORD, .event = e, .mark = ++e->recorded});
	}
	LEAVE
}

EXPORT result cuEventQuery(struct event *e) {
	ENTER(F_QUERY)
	if (r && r != NOT_READY && current()) current()->sticky = r, current()->lost++;
	NEED_CONTEXT
	if (!r && e->done < e->recorded) {
		step(e->in);
		r = current()->sticky;
		if (!r && e->done < e->recorded) r = NOT_READY;
	}
	LEAVE
}

EXPORT result cuMemGetHandleForAddressRange(int *fd, uint64_t at, size_t n, int kind, uint64_t flags) {
	ENTER(F_HANDLE)
	NEED_CONTEXT
	struct memory *m = find(at, n);
	if (!r && (!m || at % getpagesize() || n % getpagesize() || kind != 1 || at != m->at)) r = INVALID_VALUE;
	if (!r) *fd = dup(m->fd);
	LEAVE
}

// What follows is for the tests.

EXPORT uint64_t fake_alloc(int device, uint64_t n) {
	uint64_t size = (n + 0xffff) & ~0xffffull;
	int fd = memfd_create("fake device memory", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, size)) return 0;
	char *shadow = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	void *at = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0);
	if (shadow == MAP_FAILED || at == MAP_FAILED) return 0;
	struct memory *m = malloc(sizeof *m);
	pthread_mutex_lock(&lock);
	*m = (struct memory){(uint64_t)at, size, shadow, fd, device, memories};
	memories = m;
	pthread_mutex_unlock(&lock);
	return m->at;
}

EXPORT int fake_free(uint64_t at) {
	pthread_mutex_lock(&lock);
	struct memory **m = &memories;
	while (*m && (*m)->at != at) m = &(*m)->next;
	struct memory *gone = *m;
	if (gone) *m = gone->next;
	pthread_mutex_unlock(&lock);
	if (!gone) return 0;
	munmap(gone->shadow, gone->size), munmap((void *)gone->at, gone->size), close(gone->fd), free(gone);
	return 1;
}

// fake_shadow is where the driver has the memory of a device address; 0: nowhere.
EXPORT uint64_t fake_shadow(uint64_t at) {
	pthread_mutex_lock(&lock);
	struct memory *m = find(at, 1);
	uint64_t s = m ? (uint64_t)m->shadow + (at - m->at) : 0;
	pthread_mutex_unlock(&lock);
	return s;
}

EXPORT void fake_fail(int what, long after, int code) {
	pthread_mutex_lock(&lock);
	faults[what].after = after, faults[what].code = code;
	pthread_mutex_unlock(&lock);
}

EXPORT void fake_have(int n, int dma, int direct) {
	pthread_mutex_lock(&lock);
	devices = n, dmabuf = dma, rdma = direct;
	for (int i = 0; i < DEVICES; i++) contexts[i].sticky = 0;
	pthread_mutex_unlock(&lock);
}

// fake_stream makes a stream, as a program with the CUDA runtime would.
EXPORT uint64_t fake_stream(int device) {
	struct stream *s = calloc(1, sizeof *s);
	contexts[device].device = device;
	s->c = &contexts[device], s->last = &s->first;
	return (uint64_t)s;
}

// fake_add launches a kernel that adds bits, a float32's, to n floats at an address.
EXPORT void fake_add(uint64_t stream, uint64_t at, uint64_t n, uint32_t bits) {
	float value;
	memcpy(&value, &bits, 4);
	pthread_mutex_lock(&lock);
	if (!stream && !defaults[0].c) defaults[0].c = &contexts[0];
	append(stream ? (struct stream *)stream : &defaults[0], (struct work){.kind = ADD, .dst = at, .n = 4 * n, .value = value});
	pthread_mutex_unlock(&lock);
}

EXPORT long fake_count(int what) {
	pthread_mutex_lock(&lock);
	long n[] = {copies, pins, streams, events, retained, strays};
	pthread_mutex_unlock(&lock);
	return n[what];
}
