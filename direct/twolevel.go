package direct

import "github.com/gccl/gccl/schedule"

// BroadcastTwoLevel makes a Broadcast that crosses the network once for every host: among one
// leader a host, the root being one of them, and then inside every host.
//
//	cost: that of the parts
func BroadcastTwoLevel(across, inside schedule.Algorithm) schedule.Algorithm {
	return func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		leaders, host := h.leaders(shape.Root), h.host[rank]
		local, leader := h.members[host], h.local[leaders[host]]
		n, p, phases, err := compose(shape,
			use{alg: across, collective: schedule.Broadcast, ranks: leaders, me: host, root: h.host[shape.Root]},
			use{alg: inside, collective: schedule.Broadcast, ranks: local, me: h.local[rank], root: leader, groups: h.members})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.Broadcast, Rank: rank, Size: size, Root: shape.Root, Out: n,
		}
		if rank == shape.Root {
			whole.In = n
		}
		p.put(&whole)
		out, in := phases[0], phases[1]
		scale := n / in.Out
		in.in, in.out, in.linear = linear(schedule.Out, 0, scale), linear(schedule.Out, 0, scale), true
		if rank != leaders[host] {
			return whole, inTurn(&whole, in)
		}
		scale = n / out.Out
		out.in, out.out, out.linear = linear(schedule.In, 0, scale), linear(schedule.Out, 0, scale), true
		return whole, inTurn(&whole, out, in)
	}
}

// ReduceTwoLevel makes a Reduce that crosses the network once for every host: inside every host to
// a leader, and then among the leaders to the root, which is one of them.
//
//	cost: that of the parts
func ReduceTwoLevel(inside, across schedule.Algorithm) schedule.Algorithm {
	return func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		leaders, host := h.leaders(shape.Root), h.host[rank]
		local, leader := h.members[host], h.local[leaders[host]]
		n, p, phases, err := compose(shape,
			use{alg: inside, collective: schedule.Reduce, ranks: local, me: h.local[rank], root: leader, groups: h.members},
			use{alg: across, collective: schedule.Reduce, ranks: leaders, me: host, root: h.host[shape.Root]})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.Reduce, Rank: rank, Size: size, Root: shape.Root, In: n,
		}
		if rank == shape.Root {
			whole.Out = n
		}
		p.lazy = false // Scratch is used again in the next window.
		p.put(&whole)
		in, out := phases[0], phases[1]
		scale := n / in.In
		in.in, in.out, in.linear = linear(schedule.In, 0, scale), linear(schedule.Scratch, 0, scale), true
		if rank != leaders[host] {
			return whole, inTurn(&whole, in)
		}
		whole.Scratch = sizes(&whole, span(schedule.In, 0, n))
		scale = n / out.In
		out.in, out.out, out.linear = linear(schedule.Scratch, 0, scale), linear(schedule.Out, 0, scale), true
		out.final = true
		return whole, inTurn(&whole, in, out)
	}
}

// AllGatherTwoLevel makes an AllGather for hosts with equally many ranks: across hosts among the
// ranks with the same place, then inside every host. Every byte crosses the network once for each
// host, by the ports of all ranks.
//
//	cost: that of the parts; across, S is S/ranks a host
func AllGatherTwoLevel(across, inside schedule.Algorithm) schedule.Algorithm {
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
		n, p, phases, err := compose(shape,
			use{alg: across, collective: schedule.AllGather, ranks: column, me: h.host[rank]},
			use{alg: inside, collective: schedule.AllGather, ranks: local, me: place, spread: len(column)})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.AllGather, Rank: rank, Size: size, In: n, Out: n * size,
		}
		p.put(&whole)
		out, in := phases[0], phases[1]
		per := out.In
		out.in = linear(schedule.In, 0, n/per)
		out.out = columns(schedule.Out, func(b int) []int { return column[b : b+1] }, per, n/per)
		per = in.In
		in.in = columns(schedule.Out, func(int) []int { return column }, per, n/per)
		in.out = columns(schedule.Out, h.column, per, n/per)
		return whole, inTurn(&whole, out, in)
	}
}

// ReduceScatterTwoLevel makes a ReduceScatter for hosts with equally many ranks: inside every host,
// then across hosts among the ranks with the same place. Every byte crosses the network as often as
// the algorithm across demands, by the ports of all ranks.
//
//	cost: that of the parts; across, S is S/ranks a host
func ReduceScatterTwoLevel(inside, across schedule.Algorithm) schedule.Algorithm {
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
		n, p, phases, err := compose(shape,
			use{alg: inside, collective: schedule.ReduceScatter, ranks: local, me: place, spread: len(column)},
			use{alg: across, collective: schedule.ReduceScatter, ranks: column, me: h.host[rank]})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.ReduceScatter, Rank: rank, Size: size, In: n * size, Out: n,
		}
		p.lazy = false // Scratch is used again in the next window.
		p.put(&whole)
		hosts := make([]int, len(column))
		for i, r := range column {
			hosts[i] = i
			whole.Scratch = append(whole.Scratch, sizes(&whole, span(schedule.In, r*n, n))...)
		}
		in, out := phases[0], phases[1]
		per := in.Out
		in.in = columns(schedule.In, h.column, per, n/per)
		in.out = columns(schedule.Scratch, func(int) []int { return hosts }, per, n/per)
		per = out.Out
		out.in, out.out, out.linear = linear(schedule.Scratch, 0, n/per), linear(schedule.Out, 0, n/per), true
		out.final = true
		return whole, inTurn(&whole, in, out)
	}
}
