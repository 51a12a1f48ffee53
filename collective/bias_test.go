package collective

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/stretchr/testify/require"
)

// biasModel is the protocol of a bias as a model: an owner that makes calls, somebody else who takes the bias
// away (by put if serves, else by enter) and, once it has the turn, works and leaves. The owner's stores to inside wait in a buffer until
// they reach memory, any time later, or until a fence. Every interleaving is looked at.
type biasModel struct {
	serves bool
	// Bugs, to see that the model would find them.
	unfenced bool // no fence between taking the bias away and looking at inside
	unkept   bool // the owner does not ask whether it keeps the turn
}

// biasState is one state: program counters, the shared memory, and the owner's buffer of one store.
type biasState struct {
	owner, other   int8
	inside, buffer int8 // buffer: −1 empty, else what is to be stored
	bias           bool
	kept           bool
	turn           uint32
	calls          int8 // the owner has begun
	waits          int8 // work that was put
	served         int8
	in             [2]bool // in a call
}

// Steps of the owner: 0 store inside, 1 look at the bias, 2 ask keeps, 3 in the call, 4 store outside, 5 look at
// the bias, 6 ask keeps, 7 leave, 8 serve, 9 end, 10 enter the common way, 11 in the call, 12 leave.
// Steps of the other, who has the queue's lock from 1 to 3: 0 begin, 1 take the bias away, 2 fence, 3 look at
// inside, 4 take the turn or give up, 5 in the call, 6 leave, 7 end.
func (m *biasModel) next(s biasState) (out []biasState) {
	add := func(f func(n *biasState)) {
		n := s
		f(&n)
		out = append(out, n)
	}
	if s.buffer >= 0 {
		add(func(n *biasState) { n.inside, n.buffer = n.buffer, -1 })
	}
	locked := s.other >= 1 && s.other <= 3
	switch s.owner {
	case 0:
		if s.calls == 2 {
			add(func(n *biasState) { n.owner = 9 })
		} else if s.buffer < 0 {
			add(func(n *biasState) {
				n.calls++
				if n.owner, n.buffer = 1, 1; !n.bias { // begin looks first
					n.owner, n.buffer = 10, -1
				}
			})
		}
	case 1:
		add(func(n *biasState) {
			if n.owner, n.in[0] = 3, true; !n.bias {
				n.owner, n.in[0] = 2, false
			}
		})
	case 2:
		if !locked {
			add(func(n *biasState) {
				if n.owner = 10; n.kept {
					n.owner, n.in[0] = 3, true
				}
			})
		}
	case 3:
		add(func(n *biasState) { n.owner, n.in[0] = 4, false })
	case 4:
		if s.buffer < 0 {
			add(func(n *biasState) { n.owner, n.buffer = 5, 0 })
		}
	case 5:
		add(func(n *biasState) {
			if n.owner = 0; !n.bias {
				n.owner = 6
			}
		})
	case 6:
		if !locked {
			add(func(n *biasState) {
				if n.owner = 0; n.kept && !m.unkept {
					n.owner = 7
				}
			})
		}
	case 7, 12:
		add(func(n *biasState) {
			n.owner = 0
			if n.turn == turnTaken {
				n.turn = turnFree
			} else {
				n.owner = 8
			}
		})
	case 8: // serve
		if !locked {
			add(func(n *biasState) { n.served, n.waits, n.turn, n.owner = n.served+n.waits, 0, turnFree, 0 })
		}
	case 10: // to give up is to put, which is served; that is no part of this model
		add(func(n *biasState) {
			if n.owner = 0; n.turn == turnFree {
				n.owner, n.turn, n.in[0] = 11, turnTaken, true
			}
		})
	case 11:
		add(func(n *biasState) { n.owner, n.in[0] = 12, false })
	}
	switch s.other {
	case 0:
		add(func(n *biasState) { n.other = 1 })
	case 1:
		add(func(n *biasState) {
			if m.serves {
				n.waits++
			}
			n.bias, n.other = false, 2
			if !s.bias {
				n.other = 4
			}
		})
	case 2:
		if s.buffer < 0 || m.unfenced {
			add(func(n *biasState) { n.other = 3 })
		} else {
			add(func(n *biasState) { n.inside, n.buffer, n.other = n.buffer, -1, 3 })
		}
	case 3:
		add(func(n *biasState) {
			if n.other = 4; n.inside != 0 {
				n.kept = true
			} else {
				n.turn = turnFree
			}
			if m.serves { // still under the lock
				n.other = 7
				if n.turn == turnFree {
					n.other, n.in[1] = 5, true
				}
				n.turn = turnServed
			}
		})
	case 4:
		add(func(n *biasState) {
			if n.other = 7; n.turn == turnFree {
				n.other, n.turn, n.in[1] = 5, turnTaken, true
			}
		})
	case 5:
		add(func(n *biasState) { n.other, n.in[1] = 6, false })
	case 6:
		add(func(n *biasState) {
			n.other, n.turn = 7, turnFree
			n.served, n.waits = n.served+n.waits, 0
		})
	}
	return out
}

// explore looks at every state and returns what is wrong with the first that is.
func (m *biasModel) explore() (states int, wrong string) {
	first := biasState{buffer: -1, bias: true, turn: turnTaken}
	seen := map[biasState]bool{first: true}
	for todo := []biasState{first}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if s.in[0] && s.in[1] {
			return len(seen), "two have the turn"
		}
		next := m.next(s)
		switch {
		case len(next) > 0:
		case s.owner != 9 || s.other != 7:
			return len(seen), "somebody waits for ever"
		case s.waits > 0:
			return len(seen), "work is not served"
		case s.turn != turnFree:
			return len(seen), "the turn is lost"
		}
		for _, n := range next {
			if !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return len(seen), ""
}

func TestBiasModel(t *testing.T) {
	for _, serves := range []bool{false, true} {
		states, wrong := (&biasModel{serves: serves}).explore()
		require.Empty(t, wrong)
		require.Greater(t, states, 50)
		_, wrong = (&biasModel{serves: serves, unfenced: true}).explore()
		require.Equal(t, "two have the turn", wrong)
		_, wrong = (&biasModel{serves: serves, unkept: true}).explore()
		require.NotEmpty(t, wrong)
	}
}

// One goroutine makes calls in a row, so that it has a bias, while others put work and enter as they can: never two
// at a time, and all is done.
func TestBiasExcludesOthers(t *testing.T) {
	const calls, others = 200_000, 300
	var q queue
	var holders, done, biases int // guarded by the turn: not atomic
	work := func() {
		holders++
		if holders != 1 {
			t.Errorf("%d have the turn", holders)
		}
		done++
		holders--
	}
	var stop atomic.Bool
	var entered atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		defer stop.Store(true)
		for range calls {
			b, ok := q.begin()
			if !ok {
				<-q.put(func() error { work(); return nil }).done
				continue
			}
			if b != nil {
				biases++
			}
			work()
			q.end(b)
			q.mu.Lock()
			q.biases = 0 // one soon follows another
			q.mu.Unlock()
		}
	})
	wg.Go(func() {
		for range others {
			<-q.put(func() error { work(); return nil }).done
			runtime.Gosched()
		}
	})
	wg.Go(func() {
		for !stop.Load() {
			if q.enter() {
				work()
				q.leave()
				entered.Add(1)
			}
			for range 100 {
				runtime.Gosched()
			}
		}
	})
	wg.Wait()
	require.True(t, q.enter(), "the turn was lost")
	require.Equal(t, calls+others+int(entered.Load()), done)
	if cpu.Goroutine() != 0 && cpu.ReceiveFences() {
		require.Positive(t, biases)
	}
}
