package schedule

// Info describes an algorithm to whoever chooses among them: what it computes, what it promises
// and what it costs. Packages ring, tree and direct list theirs in a function Algorithms.
type Info struct {
	Name       string // "direct.AllReduceTwoShot": package and function, unique
	Collective Collective
	Make       Algorithm
	// Ordered says that operands of ⊕ keep the order of the ranks, so that operations that are
	// associative but do not commute may use it.
	Ordered bool
	// Canonical says that every result is the left fold ((x0 ⊕ x1) ⊕ x2) ⊕ … in rank order, so
	// that all canonical algorithms give the same bits. It implies Ordered.
	Canonical bool
	// InPlace says that Out may be the same memory as In (or as the block of it that has its size).
	InPlace bool
	// Uneven says that blocks may differ in length from rank to rank (AllGatherV, AllToAllV …) and
	// that a rank needs to know the lengths only of blocks that it holds in In or Out. But for AllGather and
	// ReduceScatter, all is one window then, so that a chunk may be longer than a link holds: Schedule.Ahead is 0.
	Uneven bool
	// Short says that the algorithm is for calls that fit into a few slots, whatever Cost says of longer ones.
	Short bool
	// Formula is Cost in the α-β-γ model, for people: "2(p−1)α + 2(p−1)/p·Sβ + (p−1)/p·Sγ". Before a colon
	// stands what it is for: a size, a radix, hosts, or data that is sent on while it arrives (streamed). "At the
	// root" says that Sβ is what the root receives, since it is more than any rank sends.
	Formula string
	// Supports reports why the algorithm cannot serve a size and shape; nil where it can. Make
	// fails exactly then (and for a rank out of range).
	Supports func(size int, shape Shape) error
	// Cost is the formula as numbers, for a size and shape that Supports accepts.
	Cost func(size int, shape Shape) Cost
}

// Cost is what one window costs. S is the length of the longer of In and Out on the rank where
// they are longest.
type Cost struct {
	Steps   int     // messages on the longest chain of messages that wait for one another, at most (α)
	Sent    float64 // most that one rank sends, in units of S (β)
	Reduced float64 // most that one rank combines, in units of S (γ)
}
