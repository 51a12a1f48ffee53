// Package collective is gccl's public face: communicators whose ranks combine and move tensors
// together.
//
//	comm, err := collective.Init(ctx) // rank, size and root from the launcher's environment
//	if err != nil {
//		return err
//	}
//	defer comm.Close()
//	return comm.AllReduce(ctx, tensor.Of(grad), tensor.Of(grad), tensor.Avg) // in place
//
// Every rank of a communicator must make the same calls in the same order. If they do not, all get
// an error that says who called what ([ErrMismatch]); nothing hangs and no byte outside the
// destination is touched.
//
// # Buffers
//
// Tensors are views of the caller's memory, which must not be changed (sources) or used
// (destinations) until the call has returned. In place means that destination and source are
// exactly the same memory (or, where one holds a block per rank, that the other is this rank's block of
// it); any other overlap is refused. A tensor that a call does not use on a rank, such as the
// destination of a Reduce on others than the root, may be tensor.Tensor{}.
//
// Tensors from [Comm.Alloc] lie in memory that the peers on this host can read and write directly, which makes
// large messages several times faster there. All ranks pass such tensors to a call, or none. After a call has
// broken the communicator, they may still write to what its Alloc has given out, until all ranks have closed it: what each was
// storing when this one gave up, and a stopped one when it goes on. Take the contents for undefined then, and use tensors of the
// new communicator's Alloc after Shrink. Ordinary slices are never written after the call has returned.
//
// # Contexts
//
// A context, or Config.Timeout, that ends during a call breaks the communicator on all ranks: the error here is
// context.Canceled or context.DeadlineExceeded, elsewhere [ErrGaveUp]. One that ends before the call's turn has come, or that of an
// operation such as [Comm.Alloc], gives [ErrNotBegun]: nothing was sent, but the other ranks wait for this call.
//
// # Errors
//
// [ErrInvalid]: the call was wrong locally, nothing was sent, the communicator is fine, as it is after [ErrNotBegun]. Everything
// else breaks the communicator, unless a method says otherwise: later calls return the first cause. errors.As with *[StepError]
// tells which rank is to blame, and where the call stood.
package collective
