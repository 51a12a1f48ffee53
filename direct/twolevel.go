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
		n, p, err := agree(shape, []use{{alg: across, groups: [][]int{leaders}}, {alg: inside, groups: h.members}})
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
		in, err := plan(inside, schedule.Broadcast, local, h.local[rank], leader, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
		scale := n / in.Out
		in.in, in.out, in.linear = linear(schedule.Out, 0, scale), linear(schedule.Out, 0, scale), true
		if rank != leaders[host] {
			return whole, inTurn(&whole, in)
		}
		out, err := plan(across, schedule.Broadcast, leaders, host, h.host[shape.Root], shape)
		if err != nil {
			return schedule.Schedule{}, err
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
		n, p, err := agree(shape, []use{{alg: inside, groups: h.members}, {alg: across, groups: [][]int{leaders}}})
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
		in, err := plan(inside, schedule.Reduce, local, h.local[rank], leader, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
		scale := n / in.In
		in.in, in.out, in.linear = linear(schedule.In, 0, scale), linear(schedule.Scratch, 0, scale), true
		if rank != leaders[host] {
			return whole, inTurn(&whole, in)
		}
		whole.Scratch = sizes(&whole, span(schedule.In, 0, n))
		out, err := plan(across, schedule.Reduce, leaders, host, h.host[shape.Root], shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
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
		if err := equalHosts(size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		local, place := h.members[h.host[rank]], h.local[rank]
		column := h.column(place)
		n, p, err := agree(shape, []use{{alg: across, groups: [][]int{column}}, {inside, [][]int{local}, len(column)}})
		if err != nil {
			return schedule.Schedule{}, err
		}
		whole := schedule.Schedule{
			Collective: schedule.AllGather, Rank: rank, Size: size, In: n, Out: n * size,
		}
		p.put(&whole)
		out, err := plan(across, schedule.AllGather, column, h.host[rank], 0, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
		per := out.In
		out.in = linear(schedule.In, 0, n/per)
		out.out = columns(schedule.Out, func(b int) []int { return column[b : b+1] }, per, n/per)
		in, err := plan(inside, schedule.AllGather, local, place, 0, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
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
		if err := equalHosts(size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		if err := check(rank, size, shape); err != nil {
			return schedule.Schedule{}, err
		}
		h := newHosts(size, shape)
		local, place := h.members[h.host[rank]], h.local[rank]
		column := h.column(place)
		n, p, err := agree(shape, []use{{inside, [][]int{local}, len(column)}, {alg: across, groups: [][]int{column}}})
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
		in, err := plan(inside, schedule.ReduceScatter, local, place, 0, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
		per := in.Out
		in.in = columns(schedule.In, h.column, per, n/per)
		in.out = columns(schedule.Scratch, func(int) []int { return hosts }, per, n/per)
		out, err := plan(across, schedule.ReduceScatter, column, h.host[rank], 0, shape)
		if err != nil {
			return schedule.Schedule{}, err
		}
		per = out.Out
		out.in, out.out, out.linear = linear(schedule.Scratch, 0, n/per), linear(schedule.Out, 0, n/per), true
		out.final = true
		return whole, inTurn(&whole, in, out)
	}
}
