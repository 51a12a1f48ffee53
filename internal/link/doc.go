// Package link moves messages between two ranks, one way, in order.
//
// A link is a ring of slots in the receiver's registered memory, for one (source, destination,
// lane). The sender writes a message into the next free slot; the receiver consumes it and returns
// the slot by advancing a counter, the credit, at the sender. Schedules say what is moved; links
// decide how, one message at a time, and only the sender decides:
//
//	eager   the bytes are in the slot (behind the header, or, up to 32, inside its cache line)
//	lent    the slot names a span of the sender's registered memory; the receiver reads it there
//	        (load/store peers); the credit is the acknowledgement. What goes to several peers is lent of
//	        the sender's pool ([Share]); or the slot has the address of bytes in the sender's process, which the receiver
//	        reads by a system call where it can ([Peer.Attached])
//	placed  the bytes already are in the receiver's destination, which the receiver had offered
//	        with a lent message of the same call
//
// The receiver takes whatever comes, so that ranks need not agree beforehand how a segment moves.
//
// Two forms exist. Over load/store memory ([rdma.LoadStore]) sender and receiver touch each other's
// memory directly: Reserve returns memory of the peer. Over any other endpoint Reserve returns
// registered staging memory and Commit posts it as one RDMA write with immediate. Users see no
// difference.
//
// # Who owns a slot
//
// A slot of a ring belongs to the sender from the moment the credit shows the message that had it before
// consumed until Commit stores the publication word (or posts the write); then to the receiver until its
// Advance has consumed the whole message and gives the credit: by a word or a write of its own, or with the
// next message in the other direction. Over mapped memory headers and payloads are slots of their own.
//
// Every message carries the fingerprint of the call it belongs to and a short description of it;
// a receiver that expects another fingerprint reports both descriptions ([*Mismatch]).
//
// docs/wire.md specifies every byte.
package link
