// Package pmi speaks the text protocol PMI-1 (wire protocol version 1.1) with a process manager, over
// the file descriptor that the environment variable PMI_FD names. MPICH's Hydra, Intel MPI and Slurm
// (srun --mpi=pmi2) serve it.
//
// Each request and each answer is one line of key=value pairs with blanks between them, the first of
// which is cmd. Source: the PMI-1 client of MPICH (src/pmi) as documented in Balaji et al., "PMI: A
// Scalable Parallel Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010.
package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// ErrProtocol marks an answer that makes no sense.
var ErrProtocol = errors.New("process manager's answer makes no sense")

// maxLine bounds an answer.
const maxLine = 64 << 10

// Conn is a conversation with the process manager. A process can have one, once: after Finalize the
// process manager hangs up.
type Conn struct {
	rw   io.ReadWriter
	r    *bufio.Reader
	job  string
	vmax int
	kmax int
}

// deadliner is what of a connection limits waiting. A *os.File of a socket has it.
type deadliner interface{ SetDeadline(time.Time) error }

// Start opens the conversation. rw should have a method SetDeadline, as sockets do; then ctx bounds
// Start and all other calls that are given one.
func Start(ctx context.Context, rw io.ReadWriter) (*Conn, error) {
	c := &Conn{rw: rw, r: bufio.NewReaderSize(rw, maxLine)}
	if _, err := c.ask(ctx, "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"); err != nil {
		return nil, err
	}
	limits, err := c.ask(ctx, "cmd=get_maxes", "maxes")
	if err != nil {
		return nil, err
	}
	if c.kmax, err = strconv.Atoi(limits["keylen_max"]); err != nil {
		return nil, fmt.Errorf("%w: keylen_max %q", ErrProtocol, limits["keylen_max"])
	}
	if c.vmax, err = strconv.Atoi(limits["vallen_max"]); err != nil {
		return nil, fmt.Errorf("%w: vallen_max %q", ErrProtocol, limits["vallen_max"])
	}
	name, err := c.ask(ctx, "cmd=get_my_kvsname", "my_kvsname")
	if err != nil {
		return nil, err
	}
	if c.job = name["kvsname"]; c.job == "" {
		return nil, fmt.Errorf("%w: no kvsname", ErrProtocol)
	}
	return c, nil
}

// Job returns the name of the job's key-value space, which differs from job to job.
func (c *Conn) Job() string { return c.job }

// MaxValue returns the greatest length of a value in bytes.
func (c *Conn) MaxValue() int { return c.vmax - 1 }

// Put stores a value, which others can get once all ranks have passed a Barrier. Neither key nor value
// may contain blanks, newlines or "=".
func (c *Conn) Put(ctx context.Context, key, value string) error {
	if strings.ContainsAny(key+value, " \n=") || key == "" || value == "" {
		return fmt.Errorf("pmi: key %q or value %q has a character that PMI cannot carry", key, value)
	}
	if len(key) >= c.kmax || len(value) >= c.vmax {
		return fmt.Errorf("pmi: key of %d or value of %d bytes; limits are %d and %d", len(key), len(value), c.kmax-1, c.vmax-1)
	}
	_, err := c.ask(ctx, "cmd=put kvsname="+c.job+" key="+key+" value="+value, "put_result")
	return err
}

// Barrier waits until all ranks of the job call it.
func (c *Conn) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "cmd=barrier_in", "barrier_out")
	return err
}

// Get returns a value that was put before a Barrier.
func (c *Conn) Get(ctx context.Context, key string) (string, error) {
	answer, err := c.ask(ctx, "cmd=get kvsname="+c.job+" key="+key, "get_result")
	if err != nil {
		return "", err
	}
	return answer["value"], nil
}

// Finalize ends the conversation in order, without which a process manager takes the end of this
// process for a crash.
func (c *Conn) Finalize(ctx context.Context) error {
	_, err := c.ask(ctx, "cmd=finalize", "finalize_ack")
	return err
}

// ask sends a request and returns the fields of its answer.
func (c *Conn) ask(ctx context.Context, request, want string) (map[string]string, error) {
	what, _, _ := strings.Cut(strings.TrimPrefix(request, "cmd="), " ")
	if d, ok := c.rw.(deadliner); ok {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("pmi %s: %w", what, context.Cause(ctx))
		}
		stop := context.AfterFunc(ctx, func() { d.SetDeadline(time.Unix(1, 0)) })
		defer stop()
	}
	if _, err := io.WriteString(c.rw, request+"\n"); err != nil {
		return nil, c.explain(ctx, what, err)
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, c.explain(ctx, what, err)
	}
	answer := Parse(string(line))
	if answer["cmd"] != want {
		return nil, fmt.Errorf("pmi %s: %w: %q", what, ErrProtocol, line)
	}
	if rc, given := answer["rc"]; given && rc != "0" {
		return nil, fmt.Errorf("pmi %s: process manager says %q", what, strings.TrimSpace(string(line)))
	}
	return answer, nil
}

func (c *Conn) explain(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		err = fmt.Errorf("%w: a line of more than %d bytes", ErrProtocol, maxLine)
	}
	return fmt.Errorf("pmi %s: %w", what, err)
}

// Parse splits a line into its fields. What is no key=value pair is left out.
func Parse(line string) map[string]string {
	fields := make(map[string]string)
	for _, f := range strings.Fields(line) {
		if key, value, ok := strings.Cut(f, "="); ok {
			fields[key] = value
		}
	}
	return fields
}
