// limits measures what bounds any collective on this host: memory bandwidth of one core and of two,
// and the time a cache line takes from one core to the other. It also tells where the two CPUs lie.
//
//   limits place    one JSON object: {"place":"near","flag_ns":41.2,"fma_share":0.99}
//   limits bounds   one JSON object a line: {"bound":"read","cores":2,"value":50.1,"unit":"GB/s"}
//
// Placement: a hypervisor that does not pin its virtual CPUs may at any moment run two of them as hardware
// threads of one core ("smt"), on cores that share a cache ("near") or on cores that do not ("far"). Times
// between processes change several-fold with it. "smt": running together costs each of the two more than
// 30 % of its arithmetic rate. "near" and "far" are told apart by the one-way time of a line, at 75 ns.
// With fewer than two CPUs the placement is "none" and only the bounds of one core are printed.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#define MIB ((size_t)1 << 20)
#define WORKING_SET (256 * MIB)  // of each buffer; far beyond the caches
#define REPS 3
#define SECONDS 0.12  // of one repetition
#define NEAR_NS 75.0
#define SMT_SHARE 0.7

#define DIE(what) do { fprintf(stderr, "limits: %s: %s\n", what, strerror(errno)); exit(1); } while (0)

typedef struct { _Alignas(128) atomic_uint v; } line_t;

// shared is one page between the two processes; every word that both touch has lines of its own.
static struct shared {
  line_t a, b, gen[2];
  _Alignas(128) double result[2][REPS];
} *shared;

static int cpus[2], ncpus;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void relax(void) {
#ifdef __SSE2__
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void find_cpus(void) {
  cpu_set_t s;
  if (sched_getaffinity(0, sizeof s, &s)) DIE("sched_getaffinity");
  for (int i = 0; i < CPU_SETSIZE && ncpus < 2; i++)
    if (CPU_ISSET(i, &s)) cpus[ncpus++] = i;
}

static void pin(int cpu) {
  cpu_set_t s;
  CPU_ZERO(&s);
  CPU_SET(cpu, &s);
  if (sched_setaffinity(0, sizeof s, &s)) DIE("sched_setaffinity");
}

// meet is a spinning barrier of the two processes.
static void meet(int me) {
  unsigned g = atomic_load_explicit(&shared->gen[me].v, memory_order_relaxed) + 1;
  atomic_store_explicit(&shared->gen[me].v, g, memory_order_release);
  while ((int)(atomic_load_explicit(&shared->gen[1 - me].v, memory_order_acquire) - g) < 0) relax();
}

// both runs f in two processes, pinned to the two CPUs.
static void both(void (*f)(int me, int arg), int arg) {
  pid_t p[2];
  fflush(stdout);
  memset(shared, 0, sizeof *shared);
  for (int i = 0; i < 2; i++) {
    p[i] = fork();
    if (p[i] < 0) DIE("fork");
    if (p[i] == 0) {
      prctl(PR_SET_PDEATHSIG, 9);
      pin(cpus[i]);
      f(i, arg);
      _exit(0);
    }
  }
  for (int i = 0; i < 2; i++) {
    int st;
    if (waitpid(p[i], &st, 0) < 0) DIE("waitpid");
    if (!WIFEXITED(st) || WEXITSTATUS(st)) {
      kill(p[1 - i], SIGKILL);
      fprintf(stderr, "limits: a child failed: status %x\n", st);
      exit(1);
    }
  }
}

static double median(double *v) {
  double t[REPS];
  memcpy(t, v, sizeof t);
  for (int i = 1; i < REPS; i++)
    for (int j = i; j > 0 && t[j] < t[j - 1]; j--) { double x = t[j]; t[j] = t[j - 1]; t[j - 1] = x; }
  return t[REPS / 2];
}

static void print(const char *bound, int cores, double *v, const char *unit) {
  printf("{\"bound\":\"%s\",\"cores\":%d,\"value\":%.6g,\"unit\":\"%s\"}\n", bound, cores, median(v), unit);
}

// ---- arithmetic: independent multiply-adds, so that two hardware threads of one core share its units

typedef float vec __attribute__((vector_size(32)));

static double fma_rate(double secs) {
  vec x[10], m = {0}, a = {0};
  m += 0.999f;
  a += 0.001f;
  for (int i = 0; i < 10; i++) x[i] = m * (float)i;
  double t0 = now(), t;
  long n = 0;
  do {
    for (int r = 0; r < 400; r++)
      for (int i = 0; i < 10; i++) {
        x[i] = x[i] * m + a;
        __asm__ volatile("" : : "r"(&x[i]) : "memory");
      }
    n += 4000;
    t = now();
  } while (t - t0 < secs);
  return (double)n / (t - t0);
}

// ---- cache lines

// pingpong returns the one-way time in ns: one line written by both in turn, or a line for each direction.
static double pingpong(int me, int lines, int trips) {
  atomic_uint *mine = lines == 1 || me == 0 ? &shared->a.v : &shared->b.v;
  atomic_uint *his = lines == 1 || me == 1 ? &shared->a.v : &shared->b.v;
  unsigned x = atomic_load_explicit(&shared->a.v, memory_order_acquire);
  meet(me);
  double t = now();
  for (int i = 0; i < trips; i++) {
    x += 2;
    if (me == 0) {
      atomic_store_explicit(mine, lines == 1 ? x - 1 : x, memory_order_release);
      while (atomic_load_explicit(his, memory_order_acquire) != x) {}
    } else {
      while (atomic_load_explicit(his, memory_order_acquire) != (lines == 1 ? x - 1 : x)) {}
      atomic_store_explicit(mine, x, memory_order_release);
    }
  }
  t = now() - t;
  meet(me);
  return t / trips / 2 * 1e9;
}

static void flag_child(int me, int lines) {
  pingpong(me, lines, 1000);
  for (int r = 0; r < REPS; r++) shared->result[me][r] = pingpong(me, lines, 20000);
}

// place_child leaves the line's time and the arithmetic rates alone and together.
static void place_child(int me, int unused) {
  (void)unused;
  double best = 1e9, alone = 0, together = 0;
  for (int k = 0; k < 4; k++) {
    double ns = pingpong(me, 1, 700);
    if (ns < best) best = ns;
  }
  for (int k = 0; k < 2; k++) {
    meet(me);
    if (me == 0) {
      double r = fma_rate(100e-6);
      if (r > alone) alone = r;
    }
    meet(me);
    double r = fma_rate(100e-6);
    if (r > together) together = r;
  }
  meet(me);
  shared->result[me][0] = best;
  shared->result[me][1] = alone;
  shared->result[me][2] = together;
}

static void place(void) {
  if (ncpus < 2) {
    printf("{\"place\":\"none\",\"flag_ns\":0,\"fma_share\":1}\n");
    return;
  }
  both(place_child, 0);
  double ns = shared->result[0][0], share = shared->result[0][2] / shared->result[0][1];
  printf("{\"place\":\"%s\",\"flag_ns\":%.1f,\"fma_share\":%.2f}\n", share < SMT_SHARE ? "smt" : ns < NEAR_NS ? "near" : "far", ns, share);
}

// ---- memory

typedef float wide __attribute__((vector_size(64), aligned(64)));

static volatile float sink;

static void k_read(char *dst, const char *src, size_t n) {
  (void)dst;
  const wide *p = (const wide *)src;
  wide s[4] = {0};
  for (size_t i = 0; i < n / sizeof *p; i += 4)
    for (int j = 0; j < 4; j++) s[j] += p[i + (size_t)j];
  s[0] += s[1] + s[2] + s[3];
  sink = s[0][0];
}

// k_write keeps the lines out of the caches where the machine can: plain stores read each line first.
static void k_write(char *dst, const char *src, size_t n) {
  (void)src;
#ifdef __SSE2__
  __m128 x = _mm_set1_ps(1);
  for (size_t i = 0; i < n; i += 16) _mm_stream_ps((float *)(dst + i), x);
  _mm_sfence();
#else
  memset(dst, 1, n);
#endif
}

static void k_copy(char *dst, const char *src, size_t n) {
#ifdef __SSE2__
  for (size_t i = 0; i < n; i += 64)
    for (size_t j = i; j < i + 64; j += 16) _mm_stream_ps((float *)(dst + j), _mm_load_ps((const float *)(src + j)));
  _mm_sfence();
#else
  memcpy(dst, src, n);
#endif
}

static const struct { const char *name; void (*run)(char *, const char *, size_t); } kernels[] = {
  {"read", k_read}, {"write", k_write}, {"copy", k_copy},
};
#define KERNELS (int)(sizeof kernels / sizeof *kernels)

static char *map(size_t n) {
  char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) DIE("mmap");
  memset(p, 1, n);
  return p;
}

static double rate(int k, char *dst, const char *src) {  // GB/s of payload
  double t0 = now(), t;
  size_t n = 0;
  do {
    kernels[k].run(dst + n % WORKING_SET, src + n % WORKING_SET, 4 * MIB);
    n += 4 * MIB;
    t = now();
  } while (t - t0 < SECONDS);
  return (double)n / (t - t0) / 1e9;
}

static void memory_child(int me, int k) {
  char *src = map(WORKING_SET), *dst = map(WORKING_SET);
  rate(k, dst, src);
  for (int r = 0; r < REPS; r++) {
    meet(me);
    shared->result[me][r] = rate(k, dst, src);
  }
  meet(me);
}

static void bounds(void) {
  pin(cpus[0]);
  char *src = map(WORKING_SET), *dst = map(WORKING_SET);
  for (int k = 0; k < KERNELS; k++) {
    double v[REPS];
    for (int r = 0; r < REPS; r++) v[r] = rate(k, dst, src);
    print(kernels[k].name, 1, v, "GB/s");
  }
  munmap(src, WORKING_SET);
  munmap(dst, WORKING_SET);
  if (ncpus < 2) return;
  for (int k = 0; k < KERNELS; k++) {
    double v[REPS];
    both(memory_child, k);
    for (int r = 0; r < REPS; r++) v[r] = shared->result[0][r] + shared->result[1][r];
    print(kernels[k].name, 2, v, "GB/s");
  }
  for (int lines = 1; lines <= 2; lines++) {
    both(flag_child, lines);
    print(lines == 1 ? "flag, one line" : "flag, two lines", 2, shared->result[0], "ns");
  }
}

int main(int argc, char **argv) {
  find_cpus();
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) DIE("mmap");
  if (argc == 2 && !strcmp(argv[1], "place")) place();
  else if (argc == 2 && !strcmp(argv[1], "bounds")) bounds();
  else {
    fprintf(stderr, "usage: limits place | bounds\n");
    return 2;
  }
  return 0;
}
