package direct

import "github.com/gccl/gccl/schedule"

// AllReduceTwoLevel makes an AllReduce for hosts with equally many ranks: a reduce-scatter inside
// every host, an AllReduce across hosts among the ranks with the same place, each on its share of
// the data, an all-gather inside every host. A byte crosses the network as often as the algorithm
// across demands, spread over all ranks of a host and their network ports.
//
//	cost: that of the parts; across, S is S/ranks a host
//
//	host 0   r0 r1 r2 r3     reduce-scatter ↔   then   all-gather ↔
//	          ↕  ↕  ↕  ↕     AllReduce across, on a quarter each
//	host 1   r4 r5 r6 r7     reduce-scatter ↔   then   all-gather ↔
//
// Shape.Hosts says who shares a host; the other fields of the shape go to all parts. The parts must
// serve blocks of different lengths (schedule.Info.Uneven), because S need not divide evenly.
func AllReduceTwoLevel(scatter, across, gather schedule.Algorithm) schedule.Algorithm {
	return func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		if !h.equal() {
			return schedule.Schedule{}, errUnequal
		}
		local, place := h.members[h.host[rank]], h.local[rank]
		column := h.column(place)
		share, p, phases, err := compose(shape,
			use{alg: scatter, collective: schedule.ReduceScatter, ranks: local, me: place},
			use{alg: across, collective: schedule.AllReduce, ranks: column, me: h.host[rank]},
			use{alg: gather, collective: schedule.AllGather, ranks: local, me: place})
		if err != nil {
			return schedule.Schedule{}, err
		}
		rs, ar, ag := phases[0], phases[1], phases[2]
		first := place * share
		whole := schedule.Schedule{
			Collective: schedule.AllReduce, Rank: rank, Size: size,
			In: share * len(local), Out: share * len(local),
		}
		p.put(&whole)
		for i := range share { // the share, reduced inside the host
			whole.Scratch = append(whole.Scratch, schedule.Chunk{Buf: schedule.In, Index: first + i})
		}
		rs.in, rs.out = linear(schedule.In, 0, share/rs.Out), linear(schedule.Scratch, 0, share/rs.Out)
		ar.in, ar.out = linear(schedule.Scratch, 0, share/ar.In), linear(schedule.Out, first, share/ar.In)
		ag.in, ag.out = linear(schedule.Out, first, share/ag.In), linear(schedule.Out, 0, share/ag.In)
		ar.final = true
		rs.linear, ar.linear, ag.linear = true, true, true
		return whole, inTurn(&whole, phases...)
	}
}

// AllReduceLeaders makes an AllReduce for hosts with any numbers of ranks: a Reduce to one leader
// inside every host, an AllReduce among the leaders, a Broadcast inside every host.
//
//	cost: that of the parts
func AllReduceLeaders(reduce, across, broadcast schedule.Algorithm) schedule.Algorithm {
	return func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		leaders := h.leaders(0)
		local, place, host := h.members[h.host[rank]], h.local[rank], h.host[rank]
		n, p, phases, err := compose(shape,
			use{alg: reduce, collective: schedule.Reduce, ranks: local, me: place, groups: h.members},
			use{alg: across, collective: schedule.AllReduce, ranks: leaders, me: host},
			use{alg: broadcast, collective: schedule.Broadcast, ranks: local, me: place, groups: h.members})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.AllReduce, Rank: rank, Size: size, In: n, Out: n,
		}
		p.put(&whole)
		re, ar, bc := phases[0], phases[1], phases[2]
		re.in = linear(schedule.In, 0, n/re.In)
		if place == 0 {
			whole.Scratch = sizes(&whole, span(schedule.In, 0, n))
			re.out = linear(schedule.Scratch, 0, n/re.In)
			ar.in, ar.out = linear(schedule.Scratch, 0, n/ar.In), linear(schedule.Out, 0, n/ar.In)
			bc.in = linear(schedule.Out, 0, n/bc.Out)
		} else {
			phases = []*phase{re, bc}
		}
		bc.out = linear(schedule.Out, 0, n/bc.Out)
		ar.final = true
		re.linear, ar.linear, bc.linear = true, true, true
		return whole, inTurn(&whole, phases...)
	}
}
