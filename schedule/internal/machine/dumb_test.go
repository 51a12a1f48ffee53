package machine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
)

// places is the scratch chunks of every rank in random programs.
const places = 3

// random makes schedules of a few ranks and lanes that end, whatever they compute: every step is
// made in an order in which it could run. Lane 0 first fills all places, and the other lanes wait
// for that.
func random(rng *rand.Rand) []schedule.Schedule {
	size, lanes := 2+rng.IntN(2), 2+rng.IntN(2)
	all := make([]schedule.Schedule, size)
	place := func() schedule.Span { return schedule.At(schedule.Scratch, rng.IntN(places)) }
	for r := range all {
		all[r] = schedule.Schedule{Collective: schedule.AllReduce, Rank: r, Size: size, In: 1, Out: 1, Lanes: make([]schedule.Lane, lanes)}
		for i := range places {
			all[r].Scratch = append(all[r].Scratch, schedule.Chunk{Buf: schedule.In})
			all[r].Lanes[0] = append(all[r].Lanes[0], schedule.Step{Op: schedule.Copy, Src: schedule.At(schedule.In, 0), Dst: schedule.At(schedule.Scratch, i)})
		}
	}
	add := func(r, l int, st schedule.Step) {
		lane := &all[r].Lanes[l]
		switch other := rng.IntN(lanes); {
		case l > 0 && len(*lane) == 0:
			st.After = schedule.After{Lane: 0, Steps: places}
		case other != l && len(all[r].Lanes[other]) > 0 && rng.IntN(3) == 0:
			st.After = schedule.After{Lane: other, Steps: 1 + rng.IntN(len(all[r].Lanes[other]))}
		}
		*lane = append(*lane, st)
	}
	for range 4 + rng.IntN(12) {
		r, l := rng.IntN(size), rng.IntN(lanes)
		src, dst := place(), place()
		switch rng.IntN(4) {
		case 0:
			if src != dst {
				add(r, l, schedule.Step{Op: schedule.Combine, Src: src, Dst: dst, Left: rng.IntN(2) == 0})
			}
		case 1:
			if src != dst {
				add(r, l, schedule.Step{Op: schedule.Copy, Src: src, Dst: dst})
			}
		default:
			to := (r + 1 + rng.IntN(size-1)) % size
			add(r, l, schedule.Step{Op: schedule.Send, Peer: to, Src: src})
			if rng.IntN(2) == 0 {
				add(to, l, schedule.Step{Op: schedule.Recv, Peer: r, Dst: dst})
			} else {
				add(to, l, schedule.Step{Op: schedule.RecvReduce, Peer: r, Src: dst, Dst: dst})
			}
		}
	}
	return all
}

// hashes is arithmetic in which every expression has a value of its own.
type hashes struct{}

func (hashes) Input(rank, _, chunk int) uint64 {
	return uint64(rank+1)*0x9e3779b97f4a7c15 + uint64(chunk)
}
func (hashes) Reduce(l, r uint64) (uint64, error) {
	return (l*31 + r) * 0xff51afd7ed558ccd, nil
}
func (hashes) Finish(_ int, v uint64) (uint64, error) { return v, nil }

// How a dumb link moves data.
type way int

const (
	queued  way = iota // as it was when it was sent
	landing            // a Recv's data is in its Dst as soon as it is sent
	lent               // as it is when it is received
	ways
)

// dumb runs one window, one random step after another, and returns what all places hold.
func dumb(all []schedule.Schedule, rng *rand.Rand, how way) [][]uint64 {
	type key struct{ from, to, lane int }
	type letter struct {
		value uint64
		from  *uint64
	}
	memory := make([][]uint64, len(all))
	done := make([][]int, len(all))
	for r := range all {
		memory[r], done[r] = make([]uint64, places), make([]int, len(all[r].Lanes))
	}
	links, sends := make(map[key][]letter), make(map[key]int)
	// target finds the k-th receive of a link.
	target := func(k key, nth int) *schedule.Step {
		for i := range all[k.to].Lanes[k.lane] {
			if st := &all[k.to].Lanes[k.lane][i]; st.Op.Receives() && st.Peer == k.from {
				if nth == 0 {
					return st
				}
				nth--
			}
		}
		panic("a send without a receive")
	}
	for left := true; left; {
		left = false
		r := rng.IntN(len(all))
		l := rng.IntN(len(all[r].Lanes))
		for i := range all {
			for j := range all[i].Lanes {
				left = left || done[i][j] < len(all[i].Lanes[j])
			}
		}
		if done[r][l] == len(all[r].Lanes[l]) {
			continue
		}
		st := &all[r].Lanes[l][done[r][l]]
		if st.After.Steps > done[r][st.After.Lane] {
			continue
		}
		mem := memory[r]
		operand := func() uint64 {
			if st.Src.Buf == schedule.In {
				return hashes{}.Input(r, 0, 0)
			}
			return mem[st.Src.First]
		}
		var got letter
		if st.Op.Receives() {
			k := key{st.Peer, r, l}
			if len(links[k]) == 0 {
				continue
			}
			got, links[k] = links[k][0], links[k][1:]
			if how == lent {
				got.value = *got.from
			}
		}
		switch st.Op {
		case schedule.Send:
			k := key{r, st.Peer, l}
			links[k] = append(links[k], letter{operand(), &mem[st.Src.First]})
			if to := target(k, sends[k]); how == landing && to.Op == schedule.Recv {
				memory[st.Peer][to.Dst.First] = operand()
			}
			sends[k]++
		case schedule.Recv:
			if how != landing {
				mem[st.Dst.First] = got.value
			}
		case schedule.RecvReduce:
			mem[st.Dst.First], _ = hashes{}.Reduce(operand(), got.value)
		case schedule.Copy:
			mem[st.Dst.First] = operand()
		case schedule.Combine:
			a, b := mem[st.Dst.First], operand()
			if st.Left {
				a, b = b, a
			}
			mem[st.Dst.First], _ = hashes{}.Reduce(a, b)
		}
		done[r][l]++
	}
	return memory
}

// TestOrderAgainstDumb runs random programs in random orders, one step at a time, on links of all
// ways. Where Order finds nothing wrong, the result must never depend on the order or the way, and
// must be what Values computes. Where it finds something, most programs must show it.
func TestOrderAgainstDumb(t *testing.T) {
	const programs, orders = 1000, 20
	var fine, wrong, shown [ways]int
	for seed := range uint64(programs) {
		rng := rand.New(rand.NewPCG(seed, 1))
		all := random(rng)
		p, err := New(len(all), func(r int) (schedule.Schedule, error) { return all[r], nil })
		require.NoError(t, err)
		require.NoError(t, p.Pairs())
		// Step by step, so that no step is part of an n-ary one: dumb knows none.
		for l := range p.Lanes {
			for i := range p.Lanes[l].Steps {
				p.Lanes[l].Steps[i].more = false
			}
		}
		values, order := NewValues[uint64](p, 1, false, hashes{}), NewOrder(p, 1, false)
		require.NoError(t, Run(p, Config{}, values))
		race := Run(p, Config{}, order)
		verdicts := [ways]error{race, race, race}
		if race == nil {
			verdicts[landing], verdicts[lent] = order.View(0).Early(), order.View(0).Lazy()
		}
		for how, verdict := range verdicts {
			differs := false
			for range orders {
				got := dumb(all, rng, way(how))
				for r := range all {
					want := make([]uint64, places)
					for i := range want {
						want[i] = values.held[values.place(r, schedule.Scratch, i, 0)]
					}
					differs = differs || !slices.Equal(want, got[r])
				}
			}
			if verdict == nil {
				fine[how]++
				require.False(t, differs, "seed %d, way %d: the result depends on the order\n%v", seed, how, all)
				continue
			}
			wrong[how]++
			if differs {
				shown[how]++
			}
		}
	}
	t.Logf("of %d programs: fine %v, wrong %v, of these shown %v", programs, fine, wrong, shown)
	for how := range ways {
		require.Greater(t, fine[how], programs/50, "too few programs are fine to mean anything")
		require.Greater(t, 2*shown[how], wrong[how], "most wrong programs show it")
	}
}
