// mpi_coll measures collectives over MPI as gccl perf measures them, one JSON object a line.
//
//   mpirun -n 2 mpi_coll --coll allreduce,broadcast --sizes 8,1K,1M
//
// "bytes" is the larger of a rank's buffers, as in nccl-tests: the vector of allreduce, broadcast and reduce, the
// gathered output of allgather, the full input of reducescatter, the whole buffer of alltoall, the message of
// sendrecv and pingpong. time_us is the mean of back-to-back calls on the slowest rank; of a pingpong, half of it.
// A call is checked after the measurement, element by element, unless --nocheck is given.
#define _GNU_SOURCE
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum coll { ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, REDUCE, ALLTOALL, BARRIER, SENDRECV, PINGPONG, NCOLL };
static const char *coll_name[NCOLL] = {"allreduce", "broadcast", "allgather", "reducescatter", "reduce", "alltoall", "barrier", "sendrecv", "pingpong"};
enum dt { F32, F64, I32, NDT };
static const char *dt_name[NDT] = {"float32", "float64", "int32"};
static const size_t dt_size[NDT] = {4, 8, 4};

static struct {
  int colls[NCOLL], ncolls;
  enum dt dt;
  size_t sizes[64];
  int nsizes, warmup, iters, miniters, inplace, check, huge;
  double budget;
} o = {.dt = F32, .warmup = 20, .iters = 20000, .miniters = 3, .check = 1, .budget = 0.1};

static int rank, np;
static MPI_Datatype mdt;
static char lib[64], ver[64];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static size_t parse_size(const char *s) {
  char *e;
  double v = strtod(s, &e);
  switch (*e) {
    case 'k': case 'K': v *= 1024; break;
    case 'm': case 'M': v *= 1024 * 1024; break;
    case 'g': case 'G': v *= 1024.0 * 1024 * 1024; break;
  }
  return (size_t)v;
}

// ---- data pattern: element i of rank r is (i + 17 r) mod 251; sums over few ranks are exact in float32
#define PERIOD 251
static void put(void *p, size_t i, int v) {
  if (o.dt == F32) ((float *)p)[i] = (float)v;
  else if (o.dt == F64) ((double *)p)[i] = v;
  else ((int32_t *)p)[i] = v;
}
static void init_data(void *p, size_t off, size_t n, int r) {  // p[k] = pattern(off + k, r)
  unsigned m = (unsigned)((off + 17u * (unsigned)r) % PERIOD);
  for (size_t k = 0; k < n; k++) {
    put(p, k, (int)m);
    if (++m == PERIOD) m = 0;
  }
}
static uint64_t compare(const void *p, size_t n, size_t off, const int *exp) {  // p[k] vs exp[(off+k) % PERIOD]
  uint64_t bad = 0;
  unsigned m = (unsigned)(off % PERIOD);
  for (size_t k = 0; k < n; k++) {
    double v = o.dt == F32 ? ((const float *)p)[k] : o.dt == F64 ? ((const double *)p)[k] : ((const int32_t *)p)[k];
    bad += v != (double)exp[m];
    if (++m == PERIOD) m = 0;
  }
  return bad;
}
static void expect_rank(int *e, int r) { for (int i = 0; i < PERIOD; i++) e[i] = (i + 17 * r) % PERIOD; }
static void expect_sum(int *e) {
  for (int i = 0; i < PERIOD; i++) {
    e[i] = 0;
    for (int r = 0; r < np; r++) e[i] += (i + 17 * r) % PERIOD;
  }
}

struct job {
  enum coll c;
  size_t total;  // elements in the larger buffer
  size_t per;    // elements per rank block (allgather, reducescatter, alltoall)
  char *sb, *rb;
};
static inline void one(const struct job *j) {
  const int ip = o.inplace;
  switch (j->c) {
    case ALLREDUCE: MPI_Allreduce(ip ? MPI_IN_PLACE : j->sb, j->rb, (int)j->total, mdt, MPI_SUM, MPI_COMM_WORLD); break;
    case BROADCAST: MPI_Bcast(j->rb, (int)j->total, mdt, 0, MPI_COMM_WORLD); break;
    case ALLGATHER:
      if (ip) MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, j->rb, (int)j->per, mdt, MPI_COMM_WORLD);
      else MPI_Allgather(j->sb, (int)j->per, mdt, j->rb, (int)j->per, mdt, MPI_COMM_WORLD);
      break;
    case REDUCESCATTER: MPI_Reduce_scatter_block(ip ? MPI_IN_PLACE : j->sb, j->rb, (int)j->per, mdt, MPI_SUM, MPI_COMM_WORLD); break;
    case REDUCE:
      MPI_Reduce(ip ? (rank == 0 ? MPI_IN_PLACE : j->rb) : j->sb, j->rb, (int)j->total, mdt, MPI_SUM, 0, MPI_COMM_WORLD);
      break;
    case ALLTOALL:
      if (ip) MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, j->rb, (int)j->per, mdt, MPI_COMM_WORLD);
      else MPI_Alltoall(j->sb, (int)j->per, mdt, j->rb, (int)j->per, mdt, MPI_COMM_WORLD);
      break;
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case SENDRECV:
      MPI_Sendrecv(j->sb, (int)j->total, mdt, (rank + 1) % np, 7, j->rb, (int)j->total, mdt, (rank + np - 1) % np, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      break;
    case PINGPONG:
      if (rank == 0) {
        MPI_Send(j->sb, (int)j->total, mdt, 1, 8, MPI_COMM_WORLD);
        MPI_Recv(j->rb, (int)j->total, mdt, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      } else if (rank == 1) {
        MPI_Recv(j->rb, (int)j->total, mdt, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(j->sb, (int)j->total, mdt, 0, 9, MPI_COMM_WORLD);
      }
      break;
    default: break;
  }
}
// Prepares the buffers for the checked call.
static void prepare(const struct job *j) {
  const size_t es = dt_size[o.dt];
  switch (j->c) {
    case ALLREDUCE: case REDUCE: case REDUCESCATTER:
      if (o.inplace) { init_data(j->rb, 0, j->total, rank); break; }
      init_data(j->sb, 0, j->total, rank);
      memset(j->rb, 0xee, (j->c == REDUCESCATTER ? j->per : j->total) * es);
      break;
    case BROADCAST:
      if (rank == 0) init_data(j->rb, 0, j->total, 0); else memset(j->rb, 0xee, j->total * es);
      break;
    case ALLGATHER:
      memset(j->rb, 0xee, j->total * es);
      init_data(o.inplace ? j->rb + (size_t)rank * j->per * es : j->sb, 0, j->per, rank);
      break;
    case ALLTOALL:  // block for peer p is the pattern of rank `rank`, offset by 31 p
      memset(j->rb, 0xee, j->total * es);
      for (int p = 0; p < np; p++) init_data((o.inplace ? j->rb : j->sb) + (size_t)p * j->per * es, 31u * (unsigned)p, j->per, rank);
      break;
    case SENDRECV: case PINGPONG:
      init_data(j->sb, 0, j->total, rank);
      memset(j->rb, 0xee, j->total * es);
      break;
    default: break;
  }
}
static uint64_t verify(const struct job *j) {
  const size_t es = dt_size[o.dt];
  int e[PERIOD];
  uint64_t bad = 0;
  switch (j->c) {
    case ALLREDUCE: expect_sum(e); return compare(j->rb, j->total, 0, e);
    case REDUCE: if (rank) return 0; expect_sum(e); return compare(j->rb, j->total, 0, e);
    case REDUCESCATTER: expect_sum(e); return compare(j->rb, j->per, (size_t)rank * j->per, e);
    case BROADCAST: expect_rank(e, 0); return compare(j->rb, j->total, 0, e);
    case ALLGATHER:
      for (int p = 0; p < np; p++) { expect_rank(e, p); bad += compare(j->rb + (size_t)p * j->per * es, j->per, 0, e); }
      return bad;
    case ALLTOALL:
      for (int p = 0; p < np; p++) { expect_rank(e, p); bad += compare(j->rb + (size_t)p * j->per * es, j->per, 31u * (unsigned)rank, e); }
      return bad;
    case SENDRECV: expect_rank(e, (rank + np - 1) % np); return compare(j->rb, j->total, 0, e);
    case PINGPONG: if (rank > 1) return 0; expect_rank(e, 1 - rank); return compare(j->rb, j->total, 0, e);
    default: return 0;
  }
}
static double timed(const struct job *j, int n) {  // max over ranks of the mean time per call
  MPI_Barrier(MPI_COMM_WORLD);
  double t = now();
  for (int i = 0; i < n; i++) one(j);
  double d = (now() - t) / n, m;
  if (j->c == PINGPONG) d = rank == 0 ? d / 2 : 0;
  MPI_Allreduce(&d, &m, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return m;
}
static char *alloc_buf(size_t n) {
  n = (n + 2097151) & ~(size_t)2097151;
  char *p = mmap(NULL, n + 2097152, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) { perror("mmap"); MPI_Abort(MPI_COMM_WORLD, 1); }
  p = (char *)(((uintptr_t)p + 2097151) & ~(uintptr_t)2097151);
  if (o.huge) madvise(p, n, MADV_HUGEPAGE);
  memset(p, 0, n);
  return p;
}
static void run_one(enum coll c, size_t bytes, char *sb, char *rb) {
  const size_t es = dt_size[o.dt];
  struct job j = {.c = c, .sb = sb, .rb = rb};
  j.total = bytes / es;
  j.per = j.total / (size_t)np;
  if (c == ALLGATHER || c == REDUCESCATTER || c == ALLTOALL) {
    j.total = j.per * (size_t)np;
    if (j.per == 0) return;
  }
  if (c == BARRIER) j.total = 0;
  else if (j.total == 0) return;
  bytes = j.total * es;
  prepare(&j);
  double est = timed(&j, 1);
  static double settled;  // calls before the first measurement, as gccl perf makes them
  for (int n = 1; settled < 0.01; n = n < 512 ? 2 * n : 1000) settled += n * fmax(1e-9, est = timed(&j, n));
  int w = est > 0 ? (int)(o.budget * 0.25 / est) : o.warmup;
  if (w > o.warmup) w = o.warmup;
  if (w < 1) w = 1;
  est = timed(&j, w);
  const double trips = c == PINGPONG ? 2 : 1;  // a call of a ping-pong is a whole round trip
  int n = (int)fmin(o.iters, fmax(o.miniters, o.budget / (trips * est)));
  if (n < o.iters && n > 8) {  // a cold estimate can be far off: refine it once where it matters
    est = timed(&j, n / 8);
    n = (int)fmin(o.iters, fmax(o.miniters, o.budget / (trips * est)));
  }
  double t = timed(&j, n);
  uint64_t bad = 0, allbad = 0;
  if (o.check && c != BARRIER) {
    prepare(&j);
    MPI_Barrier(MPI_COMM_WORLD);
    one(&j);
    bad = verify(&j);
    MPI_Allreduce(&bad, &allbad, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  }
  if (rank) return;
  printf("{\"lib\":\"%s\",\"version\":\"%s\",\"algo\":\"\",\"coll\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"inplace\":%d,\"iters\":%d,\"time_us\":%.4f,\"wrong\":%llu}\n",
         lib, ver, coll_name[c], np, bytes, o.inplace, n, t * 1e6, (unsigned long long)allbad);
  fflush(stdout);
}
static void usage(const char *bad) {
  if (rank == 0) {
    if (bad) fprintf(stderr, "bad argument: %s\n", bad);
    fprintf(stderr,
            "usage: mpi_coll --sizes a,b,.. [--coll a,b,..|all] [--dtype float32|float64|int32] [--warmup N] [--iters N] [--miniters N]\n"
            "  [--budget SECONDS per size] [--inplace] [--nocheck] [--huge: buffers on huge pages]\n");
  }
  MPI_Finalize();
  exit(2);
}
int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &np);
  enum { OC = 1, OD, OSIZ, OW, OI, OMI, OB, OIP, ONC, OH };
  static const struct option lo[] = {
    {"coll", 1, 0, OC}, {"dtype", 1, 0, OD}, {"sizes", 1, 0, OSIZ}, {"warmup", 1, 0, OW}, {"iters", 1, 0, OI}, {"miniters", 1, 0, OMI},
    {"budget", 1, 0, OB}, {"inplace", 0, 0, OIP}, {"nocheck", 0, 0, ONC}, {"huge", 0, 0, OH}, {0, 0, 0, 0}};
  int c;
  while ((c = getopt_long(argc, argv, "", lo, NULL)) != -1) switch (c) {
      case OC:
        for (char *s = strdup(optarg), *t = strtok(s, ","); t; t = strtok(NULL, ",")) {
          int k;
          if (!strcmp(t, "all")) {
            for (o.ncolls = 0; o.ncolls < NCOLL; o.ncolls++) o.colls[o.ncolls] = o.ncolls;
            break;
          }
          for (k = 0; k < NCOLL && strcmp(t, coll_name[k]); k++) {}
          if (k == NCOLL || o.ncolls == NCOLL) usage(t);
          o.colls[o.ncolls++] = k;
        }
        break;
      case OD: {
        int k;
        for (k = 0; k < NDT && strcmp(optarg, dt_name[k]); k++) {}
        if (k == NDT) usage(optarg);
        o.dt = (enum dt)k;
        break;
      }
      case OSIZ:
        for (char *s = strdup(optarg), *t = strtok(s, ","); t && o.nsizes < 64; t = strtok(NULL, ",")) o.sizes[o.nsizes++] = parse_size(t);
        break;
      case OW: o.warmup = atoi(optarg); break;
      case OI: o.iters = atoi(optarg); break;
      case OMI: o.miniters = atoi(optarg); break;
      case OB: o.budget = atof(optarg); break;
      case OIP: o.inplace = 1; break;
      case ONC: o.check = 0; break;
      case OH: o.huge = 1; break;
      default: usage(NULL);
    }
  if (!o.ncolls) o.colls[o.ncolls++] = ALLREDUCE;
  if (!o.nsizes) usage("--sizes is missing");
  mdt = o.dt == F32 ? MPI_FLOAT : o.dt == F64 ? MPI_DOUBLE : MPI_INT32_T;
  char v[MPI_MAX_LIBRARY_VERSION_STRING], *p;
  int vl;
  MPI_Get_library_version(v, &vl);
  if ((p = strstr(v, "Open MPI v"))) { strcpy(lib, "OpenMPI"); sscanf(p, "Open MPI v%63[^ ,\n]", ver); }
  else if ((p = strstr(v, "MPICH Version:"))) { strcpy(lib, "MPICH"); sscanf(p, "MPICH Version: %63[^ ,\n]", ver); }
  else { strcpy(lib, "MPI"); snprintf(ver, sizeof ver, "%.40s", v); }
  size_t big = 0;
  for (int i = 0; i < o.nsizes; i++) if (o.sizes[i] > big) big = o.sizes[i];
  char *sb = alloc_buf(big + 64), *rb = alloc_buf(big + 64);
  for (int k = 0; k < o.ncolls; k++) {
    enum coll cc = (enum coll)o.colls[k];
    if ((cc == PINGPONG || cc == SENDRECV) && np < 2) continue;
    if (cc == BARRIER) { run_one(cc, 0, sb, rb); continue; }
    for (int i = 0; i < o.nsizes; i++) run_one(cc, o.sizes[i], sb, rb);
  }
  MPI_Finalize();
  return 0;
}
