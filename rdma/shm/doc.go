// Package shm is the provider for processes of one host that share memory. It needs Linux.
//
// # Memory
//
// Every region from Alloc is a memfd, and so are the bell of a device and the completion ring of
// an endpoint. A peer maps them after it has received their descriptors over a Unix socket
// (SCM_RIGHTS). The socket has an abstract name, so nothing has a name in any file system:
// /dev/shm is not used (its size, 64 MiB in a container by default, does not matter), and a
// process killed by SIGKILL leaves nothing behind. The pages count in the memory cgroup of the
// process that allocated them, and lack of memory is an error of Alloc.
//
// A write is a copy into the peer's mapped region, done when Post returns. Load and store cannot
// be checked by hardware: keys and bounds are checked by the owner when a region is mapped and by
// the writer at each write, so peers that share a key trust each other as threads of one process
// do. What they cannot do is make a process fault (the files are sealed against resizing) or make
// it read beyond its own completion ring.
//
// Memory given to Register cannot be mapped by others: such a region serves as the Local of writes,
// and its Remote().Key is 0, which no peer can use.
//
// # Connections
//
// Each endpoint dials the listener of its peer's device, so a connected pair holds two connections,
// one in each direction of trust: the dialer asks, the other side answers. Both sides prove that
// they know the token of the dialed endpoint (HMAC-SHA256 over nonces of both), and both must have
// the same user id (SO_PEERCRED). Connections stay open: their end is how the death of a peer is
// noticed, within milliseconds and without traffic. An open endpoint costs two descriptors, a
// region one, a device two.
//
// Abstract names are private to a network namespace. Processes in different ones (containers
// without a shared network) cannot use shm, and Connect says so at once.
//
// # Waking
//
// A device has one bell: a futex word and, on another cache line, a count of its sleepers. Whoever
// has stored something for the device loads the count, and only if it is not zero adds to the word
// and wakes. No wake-up is lost (the argument of Dekker's algorithm; Go's atomics are sequentially
// consistent): the sleeper adds itself to the count, then remembers the word, then looks for work,
// then sleeps only while the word is what it remembered. The ringer stores the work, then loads
// the count. If it loads zero, its load comes before the sleeper's addition, so the work was
// stored before the sleeper looked. If not, it adds to the word: before the sleeper remembered it,
// and then the work was there to see; or after, and then the sleep ends at once or is woken.
//
// On amd64 a sequentially consistent store waits until it owns the cache line, which the reader has: half
// of what a small message costs. So a ringer may store with release semantics only
// (Attr.LazySignal), where its load of the count can overtake the store; between adding itself and
// looking for work the sleeper then puts a barrier into all ringers' threads (membarrier(2)), which
// restores the order. A sleeper whose sandbox forbids that call can miss a ring, and sleeps to the
// end of its nap.
package shm
