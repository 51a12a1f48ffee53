package link

// Sender is the sending half of a link. One goroutine uses it at a time.
type Sender interface {
	// Reserve returns memory for the next eager message, at most max bytes and at most a slot, or
	// false if every slot is in use. Nothing is sent before Commit; reserving again returns the same
	// memory. A reservation of up to 32 bytes must be committed whole. Over posted writes, max is for every
	// message of a transfer but the last more than what goes behind headers (4 KiB), or than a slot, however much
	// is then committed: a receiver that expects the transfer relies on it.
	Reserve(max int) ([]byte, bool)
	// Commit sends the first n reserved bytes.
	Commit(n int, c *Call)
	// Put is Reserve and Commit of a message of up to Mesh.PutBytes: src.
	Put(src []byte, c *Call) bool
	// Drained reports whether the peer has released every lent message.
	Drained() bool
}

// DirectSender is a Sender to a peer that is Direct or Attached, or that Sends is true for.
type DirectSender interface {
	Sender
	// ReserveFrom is Reserve for bytes that are sent from where they are, src, at a place if they are registered: it returns how many
	// a message can have, which may be more than a slot. It may say false for a while although slots are free (see
	// Mesh.Hurried).
	ReserveFrom(src []byte, at Place, c *Call) (n int, ok bool)
	// CommitFrom sends the first bytes of the src of the ReserveFrom before it, as many as that returned at most. They
	// must not change until the mesh is drained (Mesh.Drained, Mesh.Release), and Drained.
	CommitFrom(src []byte, c *Call)
}

// Grantee is a DirectSender over posted writes.
type Grantee interface {
	DirectSender
	// Begin says that what follows is a transfer of size bytes, at least GrantMin, in messages that add up to it.
	// For shorter ones it is not called.
	Begin(size int)
}

// Lender is the Sender to a peer that is Mapped.
type Lender interface {
	Sender
	// Lend sends the name of a span of n bytes of this rank's memory, and of the place where
	// the peer may put its answer (zero: nowhere); false if every slot is in use. The span must not change until Drained.
	Lend(span, answer Place, n int, c *Call) bool
	// Placed sends the notice that n bytes already are in the peer's destination; false if every
	// slot is in use.
	Placed(n int, c *Call) bool
}

// Receiver is the receiving half of a link. One goroutine uses it at a time.
type Receiver interface {
	// Peek returns what is left of the oldest message, or nil if none is there. It stays valid and
	// unchanged until Advance. A message of length zero is there with Len 0.
	Peek(c *Call) (*Message, error)
	// Take is Peek and Advance of the oldest message, if that is one of the call whose len(dst) bytes, up to Mesh.PutBytes, are in
	// headers or a slot: it copies them to dst. Over posted writes it takes no slot's.
	Take(dst []byte, c *Call) Took
	// Look returns the call of the oldest message that Peek has not returned yet; ok is false if none is there.
	Look() (c Call, ok bool)
	// Advance consumes n bytes; the message ends when none is left, and its slot returns to the sender.
	Advance(n int)
	// Stash copies every message that is there, unless one is half consumed, to memory of its own and
	// returns their slots. Peek gives them first from then on. It returns the memory that they take, their bytes and
	// a constant for each, and their number. It begins no message when that is max already.
	Stash(max int) (bytes, messages int, err error)
	// Stashed is how much memory it holds so.
	Stashed() int
}

// DirectReceiver is a Receiver over posted writes without checksums.
type DirectReceiver interface {
	Receiver
	// Expect tells where the bytes of the next messages, a transfer of a call, will be copied to: dst, one after the other, at
	// a place if that is registered. Where they land there, Peek shows them there, or says Placed;
	// it promises nothing. It is for when no message is open, and lasts until dst is full or Mesh.Release, and
	// Mesh.Withdraw.
	Expect(dst []byte, at Place, c *Call)
	// ExpectAhead is Expect of a transfer that comes after others, alone in its call, of n bytes at a place. It reports
	// whether the sender is told so.
	ExpectAhead(n int, at Place, c *Call) bool
}

// FarReceiver is the Receiver from a peer that is Mapped.
type FarReceiver interface {
	Receiver
	// Fetch copies the first len(dst) bytes of what is left of the message of the latest Peek, which is Far, to dst.
	// ok is false if the peer is gone, of which there is a notice at any moment, or its memory because the mesh has failed.
	Fetch(dst []byte) (ok bool, err error)
}

// Took is what Take did.
type Took uint8

const (
	Nothing Took = iota // no message is there
	Taken
	Other // a message that is for Peek, or Peek's error
)

// Message is a view of the rest of a received message.
type Message struct {
	Data   []byte // nil if Placed
	Len    int
	Placed bool // the bytes are in the destination already
	Lent   bool // the bytes are, or were, in the memory of the peer's caller, who has it back if the peer's call fails
	Far    bool // they are there, in the peer's process: Data is nil, and FarReceiver.Fetch reads them
	// Answer is, in a lent message, the peer's memory in which this rank may place its answer
	// from the place's offset on; nil if it named none.
	Answer []byte

	addr uint64 // of what is left, if it is Far
}
