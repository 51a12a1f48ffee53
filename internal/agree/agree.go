// Package agree is how the ranks of a communicator that has failed agree on who is left: a consensus as
// a pure state machine. Messages and suspicions go in, messages and decisions come out; there is no
// socket, clock or goroutine here, so that a model checker can drive it through everything that may
// happen (model_test.go).
//
// # The protocol
//
// Ranks agree round after round. In each, every rank contributes 64 flags; decided are the bitwise AND
// of the flags and the set of ranks that have failed. It is the two-phase agreement of ULFM (Herault et
// al., SC'15) with the ballots of Paxos, where the number of a ballot is the rank of its coordinator:
//
//	member ── contribute ─▶ coordinator ── propose ─▶ members ── accept ─▶ coordinator ── decide ─▶ members
//
// A suspicion is for ever, and it spreads with every message. The coordinator is the lowest rank that is
// not suspected. So coordinators follow each other in ascending order, and a member that contributes to
// one has, by its suspicions, promised not to accept anything from an earlier one. A contribution brings
// what the member has accepted before; a coordinator proposes the accepted value of the highest ballot,
// or else what it has collected. It decides when all that it does not suspect have accepted.
//
// # What it gives
//
// Suspicions are certain (the process is gone, or has left the agreement) or not (it was silent, and may
// be stopped, or cut off). A coordinator needs a quorum: a majority of the ranks of the group, or all
// but those that are certainly gone, of which no majority was silent first. Then
//
//  1. no two ranks decide differently in a round, also if one of them has died since; with uncertain
//     suspicions, unless all that accepted the first decision have certainly gone before the second;
//  2. no rank that decides is in the set of failed ranks that it decides;
//  3. every rank that is not in that set has contributed;
//  4. nobody is in that set whom no rank suspected;
//  5. once failures stop and are suspected, every rank that is not suspected decides, or there is no
//     quorum.
//
// A rank that another suspects is told so, and is out: it decides nothing any more.
package agree

// Outcome is what a round decides.
type Outcome struct {
	// Failed are the ranks that are out.
	Failed Set
	// Flags is the bitwise AND of what the others contributed.
	Flags uint64
	// Op is the operation that all of these took part in, or Mixed if they differ.
	Op uint8
}

// Mixed is the operation of an outcome whose ranks contributed to different ones.
const Mixed = 255

// Machine is one rank's part. The zero value is not usable; New makes one. It is not safe for
// concurrent use.
type Machine struct {
	rank, size int

	// Invariants: suspects never shrinks and never holds rank; certain is a part of it. silent are those
	// who were suspected without certainty at first: they may have gone on without this rank, and have
	// ended since.
	suspects, certain, silent Set

	doubt     bool // this rank trusts no certainty
	out       bool
	abandoned bool

	round uint64   // the one that is not decided, from 1
	prev  *Outcome // the decision before, nil in the first round
	cur   state    // of the round

	outbox []Message
}

// state is what a rank knows of the current round.
type state struct {
	started bool
	flags   uint64
	op      uint8
	least   uint64 // AND of all flags heard of

	toldTo   int      // coordinator that has this rank's contribution, −1: none
	accepted *Outcome // the proposal accepted last, and whose it was
	ballot   int

	// As coordinator.
	parts     map[int]part // contributions
	collected bool         // members know that this rank waits for them
	proposed  *Outcome
	accepts   Set
}

// part is a contribution.
type part struct {
	flags  uint64
	op     uint8
	ballot int
	value  *Outcome
}

// New returns the machine of a rank of a group, in round 1.
func New(rank, size int) *Machine {
	m := &Machine{rank: rank, size: size, suspects: NewSet(size), certain: NewSet(size), silent: NewSet(size), round: 1}
	m.fresh()
	return m
}

func (m *Machine) fresh() {
	m.cur = state{toldTo: -1, ballot: -1, least: ^uint64(0)}
}

// Round returns the number of the round that is not decided yet.
func (m *Machine) Round() uint64 { return m.round }

// Decision returns what a round decided. Only the latest decision is kept.
func (m *Machine) Decision(round uint64) (Outcome, bool) {
	if m.prev == nil || round != m.round-1 {
		return Outcome{}, false
	}
	return *m.prev, true
}

// Out reports whether another rank suspects this one, which ends its part.
func (m *Machine) Out() bool { return m.out }

// Abandoned reports whether a coordinator gave up for want of a quorum, which ends everybody's part.
func (m *Machine) Abandoned() bool { return m.abandoned }

// Suspects returns the ranks that this one suspects; the caller must not change it.
func (m *Machine) Suspects() Set { return m.suspects }

// Coordinator returns the lowest rank that this one does not suspect.
func (m *Machine) Coordinator() int {
	for r := range m.size {
		if !m.suspects.Has(r) {
			return r
		}
	}
	panic("agree: a rank suspects itself")
}

// Least returns the AND of all flags that this rank has heard of in the current round.
func (m *Machine) Least() uint64 { return m.cur.least }

// Missing returns the ranks whose part the current round waits for, as far as this rank knows: the
// coordinator, or what the coordinator waits for.
func (m *Machine) Missing() []int {
	c := m.Coordinator()
	if c != m.rank {
		return []int{c}
	}
	var out []int
	for r := range m.size {
		if r != m.rank && !m.suspects.Has(r) && !m.has(r) {
			out = append(out, r)
		}
	}
	return out
}

// has reports whether the coordinator has what it needs next from a member.
func (m *Machine) has(r int) bool {
	if m.cur.proposed != nil {
		return m.cur.accepts.Has(r)
	}
	_, ok := m.cur.parts[r]
	return ok
}

// Start contributes to the current round. It may be called once a round.
func (m *Machine) Start(op uint8, flags uint64) {
	m.cur.started, m.cur.op, m.cur.flags = true, op, flags
	m.cur.least &= flags
	m.consider(false)
}

// Suspect says that a rank has failed; certain: its process is gone or has left.
func (m *Machine) Suspect(rank int, certain bool) {
	if m.out || rank == m.rank {
		return
	}
	news := !m.suspects.Has(rank)
	if news && !certain {
		m.silent.Add(rank)
	}
	m.suspects.Add(rank)
	if certain && !m.certain.Has(rank) {
		news = true
		m.certain.Add(rank)
	}
	if news {
		if !certain {
			m.tell(rank)
		}
		m.consider(true)
	}
}

// Doubt makes this rank take no failure for certain, because others take this rank for lost.
func (m *Machine) Doubt() { m.doubt = true }

// Stuck reports whether the round waits for nothing but a quorum that there is not.
func (m *Machine) Stuck() bool {
	if m.out || !m.cur.started || m.Coordinator() != m.rank || m.quorum() {
		return false
	}
	return len(m.Missing()) == 0
}

// Abandon gives up for want of a quorum and tells the others.
func (m *Machine) Abandon() {
	m.abandoned = true
	for r := range m.size {
		if r != m.rank && !m.suspects.Has(r) {
			m.send(Message{Kind: Abandon, To: r})
		}
	}
}

// quorum reports whether this rank may decide with those that it does not suspect. That all others are
// certainly gone does not count if so many were silent first that they may have been a majority
// without this rank.
func (m *Machine) quorum() bool {
	if 2*(m.size-m.suspects.Len()) > m.size {
		return true
	}
	return !m.doubt && m.certain.Contains(m.suspects) && 2*m.silent.Len() <= m.size
}

// Take returns the messages that are to be sent and forgets them.
func (m *Machine) Take() []Message {
	out := m.outbox
	m.outbox = nil
	return out
}

func (m *Machine) send(msg Message) {
	msg.From, msg.Round = m.rank, m.round
	msg.Suspects, msg.Certain = m.suspects.Clone(), m.certain.Clone()
	if msg.Kind != Out && msg.Kind != Decide && msg.Kind != Abandon {
		msg.Prev = m.prev
	}
	m.outbox = append(m.outbox, msg)
}

// tell lets a suspected rank know, should it live.
func (m *Machine) tell(rank int) { m.send(Message{Kind: Out, To: rank}) }

// Step takes in a message from another rank of the group.
func (m *Machine) Step(msg Message) {
	switch {
	case m.out || m.abandoned:
		return
	case m.suspects.Has(msg.From):
		if msg.Kind != Out {
			m.tell(msg.From)
		}
		return
	case msg.Kind == Out || msg.Suspects.Has(m.rank):
		m.out = true
		return
	case msg.Kind == Abandon:
		m.abandoned = true
		return
	}
	for _, r := range msg.Suspects.Ranks() {
		if !m.suspects.Has(r) && !msg.Certain.Has(r) {
			m.silent.Add(r)
		}
	}
	grew := m.suspects.Unite(msg.Suspects)
	grew = m.certain.Unite(msg.Certain) || grew
	switch {
	case msg.Round == m.round+1 && msg.Prev != nil: // it knows how this round ended
		m.decide(*msg.Prev)
	case msg.Round+1 == m.round:
		m.remind(msg)
		m.consider(grew)
		return
	}
	if msg.Round == m.round && !m.out {
		grew = m.take(msg) || grew
	}
	m.consider(grew)
}

// remind answers who is a round behind.
func (m *Machine) remind(msg Message) {
	switch msg.Kind {
	case Contribute, Collect, Propose:
		m.announce(msg.From)
	}
}

// announce tells a member how the round before ended.
func (m *Machine) announce(to int) {
	m.send(Message{Kind: Decide, To: to, Value: m.prev})
	m.outbox[len(m.outbox)-1].Round = m.round - 1
}

// take brings a message of the current round into its state. It reports whether the members must hear
// of it.
func (m *Machine) take(msg Message) (spread bool) {
	s := &m.cur
	switch msg.Kind {
	case Contribute:
		if s.parts == nil {
			s.parts = map[int]part{}
		}
		s.parts[msg.From] = part{msg.Flags, msg.Op, msg.Ballot, msg.Value}
		spread = s.least != 0 && s.least&msg.Flags == 0
		s.least &= msg.Flags
	case Collect:
		s.least &= msg.Flags
	case Propose:
		if msg.From == m.Coordinator() && msg.Value != nil {
			s.accepted, s.ballot = msg.Value, msg.From
			m.send(Message{Kind: Accept, To: msg.From})
		}
	case Accept:
		if s.proposed != nil {
			s.accepts.Add(msg.From)
		}
	case Decide:
		if msg.Value != nil {
			m.decide(*msg.Value)
		}
	}
	return spread
}

// decide ends the round, or this rank's part. Those that have contributed to this rank wait for it, also if
// it is another from whom it has the decision.
func (m *Machine) decide(v Outcome) {
	if v.Failed.Has(m.rank) {
		m.out = true
		return
	}
	waiting := m.cur.parts
	m.suspects.Unite(v.Failed)
	m.prev = &v
	m.round++
	m.fresh()
	for r := range m.size {
		if _, ok := waiting[r]; ok && r != m.rank && !m.suspects.Has(r) {
			m.announce(r)
		}
	}
}

// consider does what the state calls for. spread: the members must hear what has changed.
func (m *Machine) consider(spread bool) {
	if m.out || m.abandoned {
		return
	}
	s := &m.cur
	if c := m.Coordinator(); c != m.rank {
		if s.started && s.toldTo != c {
			s.toldTo = c
			m.send(Message{Kind: Contribute, To: c, Op: s.op, Flags: s.flags, Ballot: s.ballot, Value: s.accepted})
		}
		return
	}
	if s.started && !s.collected || spread && (s.started || m.round > 1) {
		s.collected = s.started
		m.others(Message{Kind: Collect, Op: s.op, Flags: s.least})
	}
	if spread { // who suspected them first may have died before it could tell them
		for _, r := range m.suspects.Ranks() {
			if !m.certain.Has(r) {
				m.tell(r)
			}
		}
	}
	if !s.started || !m.quorum() || len(m.Missing()) > 0 {
		return
	}
	if s.proposed == nil {
		s.proposed = m.choose()
		s.accepted, s.ballot = s.proposed, m.rank
		s.accepts = NewSet(m.size)
		m.others(Message{Kind: Propose, Value: s.proposed})
		if len(m.Missing()) > 0 {
			return
		}
	}
	m.decide(*s.proposed)
}

func (m *Machine) others(msg Message) {
	for r := range m.size {
		if r != m.rank && !m.suspects.Has(r) {
			msg.To = r
			m.send(msg)
		}
	}
}

// choose returns what to propose: the accepted value of the highest ballot, or what was collected.
func (m *Machine) choose() *Outcome {
	s := &m.cur
	best, ballot := s.accepted, s.ballot
	v := Outcome{Failed: m.suspects.Clone(), Flags: s.flags, Op: s.op}
	for r, p := range s.parts {
		if p.value != nil && p.ballot > ballot {
			best, ballot = p.value, p.ballot
		}
		if m.suspects.Has(r) {
			continue
		}
		v.Flags &= p.flags
		if p.op != v.Op {
			v.Op = Mixed
		}
	}
	if best != nil {
		return best
	}
	return &v
}
