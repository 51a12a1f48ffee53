package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version is the version of the format of a Dump.
const Version = 1

// Dump is what a rank knows of its communicator at one moment.
type Dump struct {
	Version int `json:"version"`
	// Epoch tells communicators apart: the same number on all ranks of one.
	Epoch string    `json:"epoch"`
	Rank  int       `json:"rank"`
	Size  int       `json:"size"`
	Pid   int       `json:"pid"`
	Host  string    `json:"host"`
	At    time.Time `json:"at"`
	// Why says what the dump was made for: "failure", "signal" or "asked".
	Why string `json:"why"`
	// Seq is the number of the last collective begun; transfers count by themselves.
	Seq uint64 `json:"seq"`
	// Silent says that a call is in progress that did not answer, so that Calls and Lanes are missing.
	Silent bool `json:"silent,omitempty"`
	Closed bool `json:"closed,omitempty"`
	// Broken is why the communicator is broken, if it is.
	Broken *Broken `json:"broken,omitempty"`
	// Lanes say where the run in progress, or the one that failed, stands: the lanes that wait.
	Lanes []Lane `json:"lanes,omitempty"`
	// Calls are the last calls, oldest first.
	Calls []Call `json:"calls"`
	Peers []Peer `json:"peers,omitempty"`
}

// Broken is why a communicator is broken.
type Broken struct {
	Kind string `json:"kind"` // "peer lost", "ranks disagree" …
	Peer int    `json:"peer"` // the rank to blame; −1: nobody in particular
	Text string `json:"text"`
}

// Lane is a lane that waits.
type Lane struct {
	Lane  int    `json:"lane"`
	Step  int    `json:"step"` // from 1
	Steps int    `json:"steps"`
	Doing string `json:"doing"` // "recv-reduce from 2"
	// WaitsFor are the ranks that the lane cannot go on without.
	WaitsFor []int `json:"waits_for,omitempty"`
}

// Call is a call in words and numbers.
type Call struct {
	N    uint64 `json:"n"` // counts this rank's calls, from 1
	Kind string `json:"kind"`
	// Seq is the number of the collective on its communicator, or of the transfer to or from its peer.
	Seq  uint32 `json:"seq"`
	Peer *int   `json:"peer,omitempty"` // of a transfer
	Text string `json:"text"`           // "allreduce #12(float32[1024], sum) by ring"
	// A and B are the words that all ranks of the call must agree on, in hexadecimal.
	A         string     `json:"a"`
	B         string     `json:"b"`
	Algorithm string     `json:"algorithm"`
	Bytes     int        `json:"bytes"`
	State     State      `json:"state"`
	Waited    *time.Time `json:"first_wait,omitempty"` // absent: it never waited for more than microseconds
}

// Collective reports whether all ranks take part in the call.
func (c *Call) Collective() bool { return c.Peer == nil }

// Peer is another rank as this one sees it.
type Peer struct {
	Rank     int    `json:"rank"`
	Pid      int    `json:"pid"`
	Host     string `json:"host"`
	Provider string `json:"provider,omitempty"`
	Gone     string `json:"gone,omitempty"` // why it will send nothing more
}

// ErrFormat is the error of a file that is no dump.
var ErrFormat = errors.New("not a dump of a communicator")

// maxSize bounds the ranks that a file may claim to be one of.
const maxSize = 1 << 20

// Decode reads a dump and checks what Explain relies on.
func Decode(b []byte) (*Dump, error) {
	d := &Dump{}
	if err := json.Unmarshal(b, d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if d.Version != Version {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrFormat, d.Version, Version)
	}
	if d.Size < 1 || d.Size > maxSize || d.Rank < 0 || d.Rank >= d.Size {
		return nil, fmt.Errorf("%w: rank %d of %d", ErrFormat, d.Rank, d.Size)
	}
	if b := d.Broken; b != nil && (b.Peer < -1 || b.Peer >= d.Size) {
		return nil, fmt.Errorf("%w: blames rank %d of %d", ErrFormat, b.Peer, d.Size)
	}
	for _, l := range d.Lanes {
		for _, r := range l.WaitsFor {
			if r < 0 || r >= d.Size {
				return nil, fmt.Errorf("%w: waits for rank %d of %d", ErrFormat, r, d.Size)
			}
		}
	}
	return d, nil
}

// Encode writes a dump.
func (d *Dump) Encode() ([]byte, error) { return json.MarshalIndent(d, "", " ") }
