// Package tcp is the provider that works on every network: RDMA in software over TCP sockets. A
// write is one or more frames that carry the remote key, the offset, the length and the immediate;
// the receiver checks them, then reads the payload from the socket straight into the region.
//
// Progress. All work is done inside [rdma.CQ] Poll and [rdma.Endpoint] Post, by the caller's
// goroutine, on non-blocking sockets. A process that polls no queue lands no bytes: its peers'
// writes fill the socket buffers and then their Posts take fewer writes, and memory stays bounded
// on both sides. With one socket a signaled write completes when the kernel has taken all of
// its bytes, so its Local may be reused; it says nothing about the peer.
//
// Waiting. An armed queue hands its sockets to one goroutine, which sleeps in the runtime's poller.
// The ring function then means "Poll may make progress": a poll after it can still find
// nothing, for example while a long write is half there.
//
// Pairing. The device listens on every address that it advertises. The two ends find each other
// by dialling all of the peer's addresses; each proves that it knows the tokens in the two endpoint
// addresses and [Options].Secret, and everybody else is dropped in bounded time. The end with the
// lower name chooses the connection, so that one results whichever end calls Connect first.
//
// Death. A reset or an end of stream is noticed at once, a silent host within Options.DeadAfter,
// also by a process that does not poll. What a peer sent before it ended can still be polled.
// TCP_USER_TIMEOUT is not used: it would also end connections to a peer that is alive but has
// not polled for a while, since it counts the time of a closed window (tcp(7)).
//
// Several sockets per endpoint (Options.Sockets) share the pieces of long writes. The receiver lands
// one write after the other, whichever sockets their pieces come by. A socket that fails is given up by both
// ends, and what it had not delivered is sent again by the others; for that a write completes when
// the peer has landed it, see package rail and rdma.Attr.Landed.
//
// The wire format is specified in docs/wire-tcp.md.
package tcp
