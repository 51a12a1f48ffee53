// gloo_coll measures Gloo's collectives as gccl perf measures ours, one JSON object a line. It forks the ranks; they
// meet through files in a temporary directory and talk TCP over an interface, the only transport Debian's package has.
//
//   gloo_coll -n 2 --coll allreduce --algo ring,bcube,hd --sizes 8,1K,1M
//
// Algorithms ("new" is the function-style API; the others named old, hd and a2a are classes; those that reduce or
// broadcast work in place only, which spares them a copy):
//   allreduce     ring, bcube (new); hd, oldring, oldringchunked, oldbcube
//   broadcast     new, old (one to all)       allgather  new, old (ring)
//   reducescatter hd (the only one)           reduce     new
//   alltoall      new                         barrier    new, a2a, a2one
//   pingpong and sendrecv  new (unbound buffers)
// --mode async (default), sync or poll: the last two work for the classes only.
// Sizes and times are those of mpi_coll.c.
#include <dirent.h>
#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/config.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

namespace {

struct Opts {
  int np = 2;
  std::vector<std::string> colls, algos;
  std::string dtype = "float32", iface = "lo", mode = "async";
  std::vector<size_t> sizes;
  double budget = 0.1;
  int warmup = 20, iters = 20000, miniters = 3;
  bool inplace = false, check = true, huge = false;
} o;

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
size_t parseSize(const std::string& s) {
  char* e;
  double v = strtod(s.c_str(), &e);
  if (*e == 'k' || *e == 'K') v *= 1024;
  if (*e == 'm' || *e == 'M') v *= 1024 * 1024;
  if (*e == 'g' || *e == 'G') v *= 1024.0 * 1024 * 1024;
  return (size_t)v;
}
std::vector<std::string> split(const char* s) {
  std::vector<std::string> r;
  std::string cur;
  for (; *s; s++) {
    if (*s == ',') { if (!cur.empty()) r.push_back(cur); cur.clear(); } else cur += *s;
  }
  if (!cur.empty()) r.push_back(cur);
  return r;
}

// Control plane between the forked processes, independent of gloo; it sleeps instead of spinning.
constexpr int kMaxRanks = 64;
struct Control {
  pthread_barrier_t bar;
  double val[kMaxRanks];
  uint64_t cnt[kMaxRanks];
};
Control* ctl;
int rank_, np_;
void sync() { pthread_barrier_wait(&ctl->bar); }
double maxAll(double v) {
  ctl->val[rank_] = v;
  sync();
  double m = *std::max_element(ctl->val, ctl->val + np_);
  sync();
  return m;
}
uint64_t sumAll(uint64_t v) {
  ctl->cnt[rank_] = v;
  sync();
  uint64_t s = 0;
  for (int i = 0; i < np_; i++) s += ctl->cnt[i];
  sync();
  return s;
}

constexpr int kPeriod = 251;
template <typename T>
void initData(T* p, size_t off, size_t n, int r) {
  unsigned m = (off + 17u * (unsigned)r) % kPeriod;
  for (size_t k = 0; k < n; k++) { p[k] = (T)m; if (++m == kPeriod) m = 0; }
}
template <typename T>
uint64_t compareTo(const T* p, size_t n, size_t off, const int* e) {
  uint64_t bad = 0;
  unsigned m = off % kPeriod;
  for (size_t k = 0; k < n; k++) { bad += p[k] != (T)e[m]; if (++m == kPeriod) m = 0; }
  return bad;
}
void expectRank(int* e, int r) { for (int i = 0; i < kPeriod; i++) e[i] = (i + 17 * r) % kPeriod; }
void expectSum(int* e) {
  for (int i = 0; i < kPeriod; i++) { e[i] = 0; for (int r = 0; r < np_; r++) e[i] += (i + 17 * r) % kPeriod; }
}

template <typename T>
void sumInto(void* c_, const void* a_, const void* b_, size_t n) {
  T* c = (T*)c_;
  const T *a = (const T*)a_, *b = (const T*)b_;
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) c[i] = a[i] + b[i];
}

char* allocBuf(size_t n) {
  const size_t H = 2 << 20;
  n = (n + H - 1) & ~(H - 1);
  char* p = (char*)mmap(nullptr, n + H, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) { perror("mmap"); _exit(1); }
  p = (char*)(((uintptr_t)p + H - 1) & ~(uintptr_t)(H - 1));
  if (o.huge) madvise(p, n, MADV_HUGEPAGE);
  memset(p, 0, n);
  return p;
}

template <typename T>
struct Runner {
  std::shared_ptr<gloo::Context> ctx;
  char *sb, *rb;
  uint32_t tag = 100;

  bool isInplaceOnly(const std::string& coll, const std::string& algo) {
    return (coll == "allreduce" && (algo == "hd" || algo.rfind("old", 0) == 0)) || coll == "reducescatter" || (coll == "broadcast");
  }
  void run(const std::string& coll, const std::string& algo, size_t bytes) {
    const int np = np_, me = rank_;
    size_t total = bytes / sizeof(T), per = total / np;
    bool blocks = coll == "allgather" || coll == "reducescatter" || coll == "alltoall";
    if (blocks) { total = per * np; if (!per) return; }
    if (coll == "barrier") total = 0; else if (!total) return;
    bytes = total * sizeof(T);
    T *s = (T*)sb, *r = (T*)rb;
    const bool ip = o.inplace || isInplaceOnly(coll, algo);
    std::function<void()> op;
    tag++;
    const auto fn = &sumInto<T>;
    // Everything that can be set up once per size is, which favours gloo: the loop only issues the collective.
    if (coll == "allreduce" && (algo == "ring" || algo == "bcube")) {
      auto opt = std::make_shared<gloo::AllreduceOptions>(ctx);
      opt->setAlgorithm(algo == "ring" ? gloo::AllreduceOptions::Algorithm::RING : gloo::AllreduceOptions::Algorithm::BCUBE);
      if (!ip) opt->setInput<T>(s, total);
      opt->setOutput<T>(r, total);
      opt->setReduceFunction(fn);
      opt->setTag(tag);
      op = [opt] { gloo::allreduce(*opt); };
    } else if (coll == "allreduce") {
      std::vector<T*> ptrs{r};
      std::shared_ptr<gloo::Algorithm> a;
      if (algo == "hd") a = std::make_shared<gloo::AllreduceHalvingDoubling<T>>(ctx, ptrs, (int)total);
      else if (algo == "oldring") a = std::make_shared<gloo::AllreduceRing<T>>(ctx, ptrs, (int)total);
      else if (algo == "oldringchunked") a = std::make_shared<gloo::AllreduceRingChunked<T>>(ctx, ptrs, (int)total);
      else if (algo == "oldbcube") a = std::make_shared<gloo::AllreduceBcube<T>>(ctx, ptrs, (int)total);
      if (a) op = [a] { a->run(); };
    } else if (coll == "broadcast" && algo == "new") {
      auto opt = std::make_shared<gloo::BroadcastOptions>(ctx);
      opt->setOutput<T>(r, total);
      opt->setRoot(0);
      opt->setTag(tag);
      op = [opt] { gloo::broadcast(*opt); };
    } else if (coll == "broadcast" && algo == "old") {
      auto a = std::make_shared<gloo::BroadcastOneToAll<T>>(ctx, std::vector<T*>{r}, (int)total, 0);
      op = [a] { a->run(); };
    } else if (coll == "allgather" && algo == "new") {
      auto opt = std::make_shared<gloo::AllgatherOptions>(ctx);
      if (!ip) opt->setInput<T>(s, per);
      opt->setOutput<T>(r, total);
      opt->setTag(tag);
      op = [opt] { gloo::allgather(*opt); };
    } else if (coll == "allgather" && algo == "old") {
      auto a = std::make_shared<gloo::AllgatherRing<T>>(ctx, std::vector<const T*>{s}, r, (int)per);
      op = [a] { a->run(); };
    } else if (coll == "reducescatter" && algo == "hd") {
      auto a = std::make_shared<gloo::ReduceScatterHalvingDoubling<T>>(ctx, std::vector<T*>{r}, (int)total, std::vector<int>(np, (int)per));
      op = [a] { a->run(); };
    } else if (coll == "reduce" && algo == "new") {
      auto opt = std::make_shared<gloo::ReduceOptions>(ctx);
      if (!ip) opt->setInput<T>(s, total);
      opt->setOutput<T>(r, total);
      opt->setRoot(0);
      opt->setReduceFunction(fn);
      opt->setTag(tag);
      op = [opt] { gloo::reduce(*opt); };
    } else if (coll == "alltoall" && algo == "new") {
      auto opt = std::make_shared<gloo::AlltoallOptions>(ctx);
      opt->setInput<T>(s, total);
      opt->setOutput<T>(r, total);
      opt->setTag(tag);
      op = [opt] { gloo::alltoall(*opt); };
    } else if (coll == "barrier" && algo == "new") {
      auto opt = std::make_shared<gloo::BarrierOptions>(ctx);
      opt->setTag(tag);
      op = [opt] { gloo::barrier(*opt); };
    } else if (coll == "barrier") {
      auto c = ctx;
      std::shared_ptr<gloo::Algorithm> a;
      if (algo == "a2a") a = std::make_shared<gloo::BarrierAllToAll>(c);
      else if (algo == "a2one") a = std::make_shared<gloo::BarrierAllToOne>(c, 0);
      if (a) op = [a] { a->run(); };
    } else if ((coll == "pingpong" || coll == "sendrecv") && algo == "new") {
      std::shared_ptr<gloo::transport::UnboundBuffer> us = ctx->createUnboundBuffer(s, bytes), ur = ctx->createUnboundBuffer(r, bytes);
      const uint64_t slot = (uint64_t)tag << 32;
      if (coll == "pingpong") {
        op = [=] {
          if (me == 0) { us->send(1, slot); us->waitSend(); ur->recv(1, slot); ur->waitRecv(); }
          else if (me == 1) { ur->recv(0, slot); ur->waitRecv(); us->send(0, slot); us->waitSend(); }
        };
      } else {
        op = [=] {
          us->send((me + 1) % np, slot); ur->recv((me + np - 1) % np, slot);
          us->waitSend(); ur->waitRecv();
        };
      }
    }
    if (!op) return;  // not offered by gloo for this collective

    auto prepare = [&] {
      if (coll == "allreduce" || coll == "reduce" || coll == "reducescatter") {
        if (ip) initData(r, 0, total, me);
        else { initData(s, 0, total, me); memset((void*)r, 0xee, bytes); }
      } else if (coll == "broadcast") {
        if (me == 0) initData(r, 0, total, 0); else memset((void*)r, 0xee, bytes);
      } else if (coll == "allgather") {
        memset((void*)r, 0xee, bytes);
        initData(ip && algo == "new" ? r + me * per : s, 0, per, me);
      } else if (coll == "alltoall") {
        memset((void*)r, 0xee, bytes);
        for (int p = 0; p < np; p++) initData(s + p * per, 31u * p, per, me);
      } else if (coll != "barrier") {
        initData(s, 0, total, me);
        memset((void*)r, 0xee, bytes);
      }
    };
    auto verify = [&]() -> uint64_t {
      int e[kPeriod];
      uint64_t bad = 0;
      if (coll == "allreduce") { expectSum(e); return compareTo(r, total, 0, e); }
      if (coll == "reduce") { if (me) return 0; expectSum(e); return compareTo(r, total, 0, e); }
      if (coll == "reducescatter") { expectSum(e); return compareTo(r, per, me * per, e); }  // result at the start of the buffer
      if (coll == "broadcast") { expectRank(e, 0); return compareTo(r, total, 0, e); }
      if (coll == "allgather") { for (int p = 0; p < np; p++) { expectRank(e, p); bad += compareTo(r + p * per, per, 0, e); } return bad; }
      if (coll == "alltoall") { for (int p = 0; p < np; p++) { expectRank(e, p); bad += compareTo(r + p * per, per, 31u * me, e); } return bad; }
      if (coll == "sendrecv") { expectRank(e, (me + np - 1) % np); return compareTo(r, total, 0, e); }
      if (coll == "pingpong") { if (me > 1) return 0; expectRank(e, 1 - me); return compareTo(r, total, 0, e); }
      return 0;
    };
    const bool pp = coll == "pingpong";
    auto timed = [&](int n) {
      sync();
      double t = now();
      for (int i = 0; i < n; i++) op();
      double d = (now() - t) / n;
      if (pp) d = me == 0 ? d / 2 : 0;
      return maxAll(d);
    };
    prepare();
    double est = timed(1);
    static double settled;  // calls before the first measurement, as gccl perf makes them
    for (int n = 1; settled < 0.01; n = n < 512 ? 2 * n : 1000) settled += n * std::max(1e-9, est = timed(n));
    int w = std::max(1, (int)std::min<double>(o.warmup, o.budget * 0.25 / est));
    est = timed(w);
    const double trips = pp ? 2 : 1;  // a call of a ping-pong is a whole round trip
    int n = (int)std::min<double>(o.iters, std::max<double>(o.miniters, o.budget / (trips * est)));
    if (n < o.iters && n > 8) {  // a cold estimate can be far off: refine it once where it matters
      est = timed(n / 8);
      n = (int)std::min<double>(o.iters, std::max<double>(o.miniters, o.budget / (trips * est)));
    }
    double t = timed(n);
    uint64_t bad = 0;
    if (o.check && coll != "barrier") {
      prepare();
      sync();
      op();
      bad = sumAll(verify());
    }
    if (me == 0) {
      printf("{\"lib\":\"Gloo\",\"version\":\"%d.%d.%d\",\"algo\":\"%s\",\"coll\":\"%s\",\"ranks\":%d,\"bytes\":%zu,\"inplace\":%d,\"iters\":%d,\"time_us\":%.4f,\"wrong\":%llu}\n",
             GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH, algo.c_str(), coll.c_str(), np, bytes, (int)ip, n, t * 1e6, (unsigned long long)bad);
      fflush(stdout);
    }
    sync();
  }
};

std::vector<std::string> algosOf(const std::string& c) {
  if (c == "allreduce") return {"ring", "bcube", "hd", "oldringchunked", "oldbcube", "oldring"};
  if (c == "broadcast" || c == "allgather") return {"new", "old"};
  if (c == "reducescatter") return {"hd"};
  if (c == "barrier") return {"new", "a2a", "a2one"};
  return {"new"};
}

template <typename T>
void runAll(std::shared_ptr<gloo::Context> ctx) {
  size_t big = 0;
  for (auto s : o.sizes) big = std::max(big, s);
  Runner<T> R{ctx, allocBuf(big + 64), allocBuf(big + 64)};
  for (auto& c : o.colls)
    for (auto& a : algosOf(c)) {
      if (!o.algos.empty() && std::find(o.algos.begin(), o.algos.end(), a) == o.algos.end()) continue;
      bool isnew = a == "ring" || a == "bcube" || a == "new";
      if (o.mode != "async" && isnew) continue;  // unbound buffers need async mode
      if (c == "barrier") R.run(c, a, 0);
      else for (auto s : o.sizes) R.run(c, a, s);
    }
}

std::shared_ptr<gloo::transport::Device> makeDevice() {
  gloo::transport::tcp::attr a;
  a.iface = o.iface;
  return gloo::transport::tcp::CreateDevice(a);
}

void child(int r, const std::string& dir) {
  rank_ = r;
  prctl(PR_SET_PDEATHSIG, 9);
  auto dev = makeDevice();
  gloo::rendezvous::FileStore store(dir);
  auto ctx = std::make_shared<gloo::rendezvous::Context>(r, np_);
  ctx->setTimeout(std::chrono::seconds(120));
  ctx->connectFullMesh(store, dev);
  if (o.mode != "async")
    for (int i = 0; i < np_; i++) if (i != r) ctx->getPair(i)->setSync(true, o.mode == "poll");
  if (o.dtype == "float32") runAll<float>(ctx);
  else if (o.dtype == "float64") runAll<double>(ctx);
  else runAll<int32_t>(ctx);
  fflush(stdout);
  sync();
  _exit(0);
}
}  // namespace

int main(int argc, char** argv) {
  enum { OC = 1, OA, OD, OSIZ, OW, OI, OMI, OB, OIP, ONC, OH, OIF, OM };
  static const option lo[] = {
      {"coll", 1, 0, OC}, {"algo", 1, 0, OA}, {"dtype", 1, 0, OD}, {"sizes", 1, 0, OSIZ}, {"warmup", 1, 0, OW}, {"iters", 1, 0, OI}, {"miniters", 1, 0, OMI},
      {"budget", 1, 0, OB}, {"inplace", 0, 0, OIP}, {"nocheck", 0, 0, ONC}, {"huge", 0, 0, OH}, {"iface", 1, 0, OIF}, {"mode", 1, 0, OM}, {0, 0, 0, 0}};
  int c;
  while ((c = getopt_long(argc, argv, "n:", lo, nullptr)) != -1) switch (c) {
      case 'n': o.np = atoi(optarg); break;
      case OC: o.colls = split(optarg); break;
      case OA: o.algos = split(optarg); break;
      case OD: o.dtype = optarg; break;
      case OSIZ: for (auto& s : split(optarg)) o.sizes.push_back(parseSize(s)); break;
      case OW: o.warmup = atoi(optarg); break;
      case OI: o.iters = atoi(optarg); break;
      case OMI: o.miniters = atoi(optarg); break;
      case OB: o.budget = atof(optarg); break;
      case OIP: o.inplace = true; break;
      case ONC: o.check = false; break;
      case OH: o.huge = true; break;
      case OIF: o.iface = optarg; break;
      case OM: o.mode = optarg; break;
      default: fprintf(stderr, "see the comment at the top of gloo_coll.cc\n"); return 2;
    }
  if (o.np < 1 || o.np > kMaxRanks || o.sizes.empty()) {
    fprintf(stderr, "usage: see the comment at the top of gloo_coll.cc\n");
    return 2;
  }
  if (o.colls.empty()) o.colls = {"allreduce"};
  if (o.colls[0] == "all") o.colls = {"allreduce", "broadcast", "allgather", "reducescatter", "reduce", "alltoall", "barrier", "sendrecv", "pingpong"};
  np_ = o.np;
  ctl = (Control*)mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (ctl == MAP_FAILED) { perror("mmap"); return 1; }
  pthread_barrierattr_t ba;
  pthread_barrierattr_init(&ba);
  pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&ctl->bar, &ba, np_);
  const char* tmp = getenv("TMPDIR");
  std::string dir = std::string(tmp && *tmp ? tmp : P_tmpdir) + "/gloo_coll.XXXXXX";
  if (!mkdtemp(&dir[0])) { perror("mkdtemp"); return 1; }
  std::vector<pid_t> pids;
  for (int r = 0; r < np_; r++) {
    pid_t p = fork();
    if (p == 0) {
      try { child(r, dir); } catch (const std::exception& e) { fprintf(stderr, "rank %d: %s\n", r, e.what()); }
      _exit(1);
    }
    pids.push_back(p);
  }
  int rc = 0;
  for (int left = np_; left > 0; left--) {
    int st;
    pid_t p = wait(&st);
    if (p < 0) break;
    if (!WIFEXITED(st) || WEXITSTATUS(st)) {
      rc = WIFEXITED(st) ? WEXITSTATUS(st) : 1;
      for (auto q : pids) if (q != p) kill(q, SIGKILL);  // only our own children
    }
  }
  if (DIR* d = opendir(dir.c_str())) {
    while (dirent* e = readdir(d)) if (e->d_name[0] != '.') unlink((dir + "/" + e->d_name).c_str());
    closedir(d);
  }
  rmdir(dir.c_str());
  return rc;
}
