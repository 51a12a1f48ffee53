package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// converse plays a process manager that answers by a script of "request > answer" lines.
func converse(t *testing.T, script string) net.Conn {
	client, manager := net.Pipe()
	t.Cleanup(func() { client.Close(); manager.Close() })
	go func() {
		defer manager.Close()
		r := bufio.NewReader(manager)
		for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
			want, answer, asked := strings.Cut(line, " > ")
			if !asked {
				continue
			}
			got, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if got != strings.TrimSpace(want)+"\n" {
				fmt.Fprintf(manager, "cmd=unexpected got=%q\n", got)
				return
			}
			io.WriteString(manager, answer+"\n")
		}
	}()
	return client
}

const opening = `
cmd=init pmi_version=1 pmi_subversion=1 > cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
cmd=get_maxes > cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=32
cmd=get_my_kvsname > cmd=my_kvsname kvsname=kvs_1_0
`

func TestConversation(t *testing.T) {
	ctx := context.Background()
	c, err := Start(ctx, converse(t, opening+`
cmd=put kvsname=kvs_1_0 key=k value=v,w > cmd=put_result rc=0 msg=success
cmd=barrier_in > cmd=barrier_out rc=0
cmd=get kvsname=kvs_1_0 key=k > cmd=get_result rc=0 msg=success value=v,w
cmd=get kvsname=kvs_1_0 key=l > cmd=get_result rc=-1 msg=key_l_not_found value=unknown
cmd=finalize > cmd=finalize_ack rc=0
`))
	require.NoError(t, err)
	assert.Equal(t, "kvs_1_0", c.Job())
	assert.Equal(t, 31, c.MaxValue())
	assert.Error(t, c.Put(ctx, "k", "two words"))
	assert.Error(t, c.Put(ctx, "k", strings.Repeat("v", 32)))
	assert.Error(t, c.Put(ctx, "k=", "v"))
	require.NoError(t, c.Put(ctx, "k", "v,w"))
	require.NoError(t, c.Barrier(ctx))
	v, err := c.Get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, "v,w", v)
	_, err = c.Get(ctx, "l")
	assert.ErrorContains(t, err, "key_l_not_found")
	require.NoError(t, c.Finalize(ctx))
	assert.Error(t, c.Barrier(ctx), "it is over")
}

func TestNonsense(t *testing.T) {
	for _, script := range []string{
		"cmd=init pmi_version=1 pmi_subversion=1 > nonsense",
		"cmd=init pmi_version=1 pmi_subversion=1 > cmd=response_to_init rc=-1",
		"cmd=init pmi_version=1 pmi_subversion=1 > cmd=response_to_init rc=0\ncmd=get_maxes > cmd=maxes keylen_max=x",
		"cmd=init pmi_version=1 pmi_subversion=1 > " + strings.Repeat("x", maxLine+1),
	} {
		_, err := Start(context.Background(), converse(t, script))
		assert.Error(t, err)
	}
}

func TestContextEndsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, manager := net.Pipe()
		defer manager.Close()
		defer client.Close()
		go io.Copy(io.Discard, manager)
		enough := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, enough)
		defer cancel()
		_, err := Start(ctx, client)
		assert.ErrorIs(t, err, enough)
	})
}

func FuzzParse(f *testing.F) {
	f.Add("cmd=maxes kvsname_max=256 keylen_max=64")
	f.Fuzz(func(t *testing.T, line string) {
		for key, value := range Parse(line) {
			if !strings.Contains(line, key+"="+value) {
				t.Errorf("%q: %q=%q", line, key, value)
			}
		}
	})
}
