package machine

// queues holds what is on its way on the links of one run, in a place of its own for every chunk
// of every window: nothing is ever moved or grown.
type queues[T any] struct {
	items []T
	links []span
}

// span is a queue: what was put in and not yet taken out.
type span struct{ head, tail int }

func newQueues[T any](p *Program, windows int) queues[T] {
	q := queues[T]{items: make([]T, windows*int(p.sent)), links: make([]span, len(p.Links))}
	for i := range p.Links {
		at := windows * int(p.Links[i].base)
		q.links[i] = span{at, at}
	}
	return q
}

func (q *queues[T]) push(link int32, x T) {
	k := &q.links[link]
	q.items[k.tail] = x
	k.tail++
}

// pop must not be called on an empty queue.
func (q *queues[T]) pop(link int32) T {
	k := &q.links[link]
	x := q.items[k.head]
	k.head++
	return x
}
