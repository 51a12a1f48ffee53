package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
)

// process is a rank on this host, or the remote shell that leads to one elsewhere.
type process struct {
	*exec.Cmd
	host  string        // of a remote shell
	greet string        // what it reads first
	words chan string   // signals for the rank; "" is the end
	ended chan struct{} // closed when the remote shell has ended
	over  atomic.Bool   // its end has been seen: its number may be another's soon
	begun bool          // kill has asked
}

// sshOptions make ssh fail rather than ask, and notice a host that is gone within half a minute.
var sshOptions = []string{"-x", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"}

// remote is a rank on another host. The remote shell gets, as one word, a script that never changes
// but for program and directory; the environment goes by its standard input, as a secret must not stand
// in the list of processes. Afterwards a line there is a signal for the rank's process group, and the
// end of the input, which comes whenever this process, the remote shell or the network between ends, is
// the rank's end.
func (j *Job) remote(host string, env []string) (*process, error) {
	shell := j.Shell
	if len(shell) == 0 {
		shell = []string{"ssh"}
	}
	if len(shell) == 1 && filepath.Base(shell[0]) == "ssh" {
		shell = append(shell[:1:1], sshOptions...)
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var greet strings.Builder
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if !variable.MatchString(name) {
			return nil, fmt.Errorf("variable %q: a shell on another host cannot have one of this name", name)
		}
		if strings.Contains(value, "\n") {
			return nil, fmt.Errorf("variable %s: a value of several lines cannot be sent to another host", name)
		}
		greet.WriteString(e + "\n")
	}
	greet.WriteString("\n")
	words := make([]string, len(j.Args))
	for i, a := range j.Args {
		words[i] = quote(a)
	}
	script := fmt.Sprintf(remoteScript, quote(dir), strings.Join(words, " "))
	args := append(shell[1:len(shell):len(shell)], host, "exec sh -c "+quote(script))
	p := &process{Cmd: exec.Command(shell[0], args...), host: host, greet: greet.String()}
	p.Env = os.Environ()
	p.SysProcAttr = attributes()
	return p, nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// remoteScript runs a rank: first the directory, then the program with its arguments. The watcher has
// the shell's input to itself, as the rank gets none.
const remoteScript = `while IFS= read -r line && [ -n "$line" ]; do export "$line"; done
cd %s || exit 127
group=; if command -v setsid >/dev/null 2>&1; then group=-; run=setsid; else run=; fi
exec 3<&0
$run %s </dev/null 3<&- &
rank=$!
{ while read -r s; do kill -$s $group$rank; done; kill -TERM $group$rank; sleep 2; kill -KILL $group$rank; } <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait $rank; code=$?
kill $watcher 2>/dev/null
exit $code`

// quote makes a word of a shell's out of any text.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// forwarded are the variables that ranks on other hosts get without being told: this library's, and
// those of its kin that it understands.
func forwarded(environ []string) []string {
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "GCCL_") || strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "GLOO_") {
			out = append(out, e)
		}
	}
	return out
}

func (p *process) start() error {
	if p.host == "" {
		return p.Start()
	}
	in, err := p.StdinPipe()
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	p.words, p.ended = make(chan string, 4), make(chan struct{})
	go func() {
		_, err := io.WriteString(in, p.greet) // the end of the shell closes the pipe, and ends this
		for err == nil {
			select {
			case w := <-p.words:
				if w == "" {
					_ = in.Close()
					return
				}
				_, err = io.WriteString(in, w+"\n")
			case <-p.ended:
				return
			}
		}
	}()
	return nil
}

// wait waits for the end of a started process.
func (p *process) wait() error {
	err := p.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the rank ended well; another process still has its output open
	}
	p.over.Store(true)
	if p.host != "" {
		close(p.ended)
	}
	return p.explain(err)
}

// say tells the far end of a remote shell a word, unless nothing has been heard there for long.
func (p *process) say(word string) {
	select {
	case p.words <- word:
	default:
	}
}

// terminate asks the rank to end.
func (p *process) terminate() {
	switch {
	case p.over.Load():
	case p.host == "":
		terminate(p.Process)
	default:
		p.say("TERM")
	}
}

// kill ends the rank. If it is elsewhere, the remote shell has time to see to it, and kill is to be
// called again.
func (p *process) kill() (again bool) {
	switch {
	case p.over.Load():
		return false
	case p.host == "" || p.begun:
		kill(p.Process)
		return false
	}
	p.begun = true
	p.say("KILL")
	p.say("")
	return true
}

// lostShell is how ssh, and what imitates it, says that it failed itself, or lost its connection.
const lostShell = 255

// explain says of an end that it is the remote shell's, where that is so.
func (p *process) explain(err error) error {
	var x *exec.ExitError
	if p.host == "" || !errors.As(err, &x) {
		return err
	}
	if code := exitCode(x.ProcessState); code == lostShell || !x.Exited() {
		return fmt.Errorf("on %s: the remote shell %s failed or lost its connection: %w", p.host, p.Args[0], err)
	}
	return fmt.Errorf("on %s: %w", p.host, err)
}
