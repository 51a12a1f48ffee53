package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// env reads lines of NAME=VALUE.
func env(lines string) func(string) (string, bool) {
	vars := make(map[string]string)
	for _, l := range strings.Fields(lines) {
		name, value, _ := strings.Cut(l, "=")
		vars[name] = value
	}
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

// brief writes what a launcher said, to be compared.
func brief(c Config) string {
	return fmt.Sprintf("rank %d/%d local %d/%d root %s guess %v pmi %d run %s epoch %d",
		c.Rank, c.Size, c.LocalRank, c.LocalSize, c.Root, c.RootIsGuess, c.PMIFD, c.RunID, c.Epoch)
}

const (
	torch = " RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=job TORCHELASTIC_RESTART_COUNT=2 "
	ompi  = " OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=4711 " +
		"OMPI_MCA_orte_hnp_uri=4711.0;tcp://192.0.2.2,172.17.0.1:45943;tcp6://[2001:db8::2]:45944 "
	hydra = " PMI_RANK=2 PMI_SIZE=4 PMI_FD=7 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 "
	step  = " SLURM_JOB_ID=12 SLURM_STEP_ID=3 SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_NODEID=1 " +
		"SLURM_STEP_NUM_NODES=2 SLURM_STEP_TASKS_PER_NODE=3,1 SLURM_STEP_NODELIST=n[07-08] SLURM_RESTART_COUNT=1 SLURM_LAUNCH_NODE_IPADDR=192.0.2.9 "
	batch   = " SLURM_JOB_ID=12 SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0 "
	horovod = " HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_GLOO_RENDEZVOUS_ADDR=h HOROVOD_GLOO_RENDEZVOUS_PORT=1234 "
	lws     = " LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=3 LWS_LEADER_ADDRESS=lead.svc.ns "
)

func TestLaunchers(t *testing.T) {
	for name, c := range map[string]struct{ vars, launcher, want string }{
		"nothing":       {"PATH=/bin RANKS=3", "none", "rank 0/1 local 0/1 root  guess false pmi 0 run  epoch 0"},
		"own":           {"GCCL_RANK=1 GCCL_SIZE=3 GCCL_ROOT=h:7000", "gccl", "rank 1/3 local 0/0 root h:7000 guess false pmi 0 run  epoch 0"},
		"own, complete": {"GCCL_RANK=1 GCCL_SIZE=3 GCCL_ROOT=h:7000 GCCL_LOCAL_RANK=1 GCCL_LOCAL_SIZE=2 GCCL_RUN_ID=x GCCL_EPOCH=9", "gccl", "rank 1/3 local 1/2 root h:7000 guess false pmi 0 run x epoch 9"},
		"own before torchrun": {"GCCL_RANK=1 GCCL_SIZE=3 GCCL_ROOT=[::1]:7000-7003" + torch, "gccl",
			"rank 1/3 local 0/0 root [::1]:7000-7003 guess false pmi 0 run  epoch 0"},
		"NCCL_COMM_ID":  {"GCCL_RANK=1 GCCL_SIZE=3 NCCL_COMM_ID=h:1", "gccl", "rank 1/3 local 0/0 root h:1 guess false pmi 0 run  epoch 0"},
		"root and port": {"GCCL_RANK=1 GCCL_SIZE=3 GCCL_ROOT=h GCCL_PORT_RANGE=7000-7009", "gccl", "rank 1/3 local 0/0 root h:7000-7009 guess false pmi 0 run  epoch 0"},
		"torchrun":      {torch, "torchrun", "rank 3/4 local 1/2 root h0:" + derivePorts("torch/job/29500") + " guess false pmi 0 run torch/job/29500 epoch 2"},
		// torchrun inside srun: Slurm's rank is the node.
		"torchrun in srun": {torch + step, "torchrun", "rank 3/4 local 1/2 root h0:" + derivePorts("torch/job/29500") + " guess false pmi 0 run torch/job/29500 epoch 2"},
		"torch with root":  {torch + "GCCL_ROOT=x:1", "torchrun", "rank 3/4 local 1/2 root x:1 guess false pmi 0 run torch/job/29500 epoch 2"},
		"openmpi": {ompi, "openmpi", "rank 1/4 local 1/2 root 192.0.2.2:" + derivePorts("openmpi/4711") + ",172.17.0.1:" + derivePorts("openmpi/4711") +
			",[2001:db8::2]:" + derivePorts("openmpi/4711") + " guess true pmi 0 run openmpi/4711 epoch 0"},
		"openmpi on one host": {strings.ReplaceAll(ompi, "SIZE=2", "SIZE=4"), "openmpi",
			"rank 1/4 local 1/4 root 127.0.0.1:" + derivePorts("openmpi/4711") + " guess false pmi 0 run openmpi/4711 epoch 0"},
		"hydra": {hydra, "pmi", "rank 2/4 local 0/2 root  guess false pmi 7 run  epoch 0"},
		// mpirun inside sbatch: the processes see the Slurm variables of Hydra's or Open MPI's proxies.
		"hydra in sbatch":   {hydra + step, "pmi", "rank 2/4 local 0/2 root  guess false pmi 7 run  epoch 0"},
		"openmpi in sbatch": {strings.ReplaceAll(ompi, "SIZE=2", "SIZE=4") + step, "openmpi", "rank 1/4 local 1/4 root 127.0.0.1:" + derivePorts("openmpi/4711") + " guess false pmi 0 run openmpi/4711 epoch 0"},
		"hydra with store":  {hydra + "GCCL_RENDEZVOUS=file:///d GCCL_RUN_ID=r", "pmi", "rank 2/4 local 0/2 root  guess false pmi 0 run r epoch 0"},
		"hydra with root":   {hydra + "GCCL_ROOT=h:1", "pmi", "rank 2/4 local 0/2 root h:1 guess false pmi 0 run  epoch 0"},
		"srun pmi2": {"PMI_RANK=3 PMI_SIZE=4 PMI_FD=9 PMI_JOBID=12.3" + step, "pmi",
			"rank 3/4 local 0/1 root  guess false pmi 9 run pmi/12.3 epoch 0"},
		"srun": {step, "slurm", "rank 3/4 local 0/1 root n07:" + derivePorts("slurm/12.3") + " guess true pmi 0 run slurm/12.3 epoch 1"},
		"srun on one node": {"SLURM_JOB_ID=12 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=n1",
			"slurm", "rank 1/2 local 1/2 root 127.0.0.1:" + derivePorts("slurm/12.0") + " guess false pmi 0 run slurm/12.0 epoch 0"},
		"a batch script with one task": {strings.ReplaceAll(batch, "NTASKS=4", "NTASKS=1"), "none", "rank 0/1 local 0/1 root  guess false pmi 0 run  epoch 0"},
		"horovod":                      {horovod, "horovod", "rank 1/2 local 1/2 root 127.0.0.1:" + derivePorts("horovod/h/1234") + " guess false pmi 0 run horovod/h/1234 epoch 0"},
		"lws":                          {lws, "lws", "rank 1/3 local 0/1 root lead.svc.ns:" + derivePorts("lws/lead.svc.ns") + " guess false pmi 0 run lws/lead.svc.ns epoch 0"},
		"indexed job":                  {"JOB_COMPLETION_INDEX=2 GCCL_SIZE=5 GCCL_ROOT=j-0.svc:80", "kubernetes", "rank 2/5 local 0/1 root j-0.svc:80 guess false pmi 0 run  epoch 0"},
		"empty is unset":               {"RANK= WORLD_SIZE= GCCL_RANK=", "none", "rank 0/1 local 0/1 root  guess false pmi 0 run  epoch 0"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, source, err := FromEnv(env(c.vars))
			require.NoError(t, err)
			assert.Equal(t, c.want, brief(cfg))
			assert.Equal(t, c.launcher, source.Launcher)
		})
	}
}

func TestLaunchersRefuse(t *testing.T) {
	for name, c := range map[string]struct{ vars, want string }{
		"own without size":        {"GCCL_RANK=0", "GCCL_SIZE is missing"},
		"own without rank":        {"GCCL_SIZE=2", "GCCL_RANK is missing"},
		"own without root":        {"GCCL_RANK=0 GCCL_SIZE=2", "GCCL_ROOT"},
		"torch without size":      {"RANK=0", "WORLD_SIZE is missing"},
		"torch without rank":      {"WORLD_SIZE=4", "RANK is missing"},
		"torch without address":   {"RANK=0 WORLD_SIZE=2", "MASTER_ADDR is missing"},
		"openmpi without size":    {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is missing"},
		"pmi without size":        {"PMI_RANK=0", "PMI_SIZE is missing"},
		"pmi with a bad fd":       {"PMI_RANK=0 PMI_SIZE=2 PMI_FD=x", "PMI_FD"},
		"batch script":            {batch, "start it with srun"},
		"salloc shell":            {"SLURM_JOB_ID=12 SLURM_NTASKS=4", "start it with srun"},
		"slurm with a bad list":   {strings.ReplaceAll(step, "n[07-08]", "n[07-"), "node list"},
		"horovod without rank":    {"HOROVOD_SIZE=2", "HOROVOD_RANK is missing"},
		"lws without leader":      {"LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=3", "LWS_LEADER_ADDRESS is missing"},
		"indexed job, no size":    {"JOB_COMPLETION_INDEX=2", "GCCL_SIZE is missing"},
		"indexed job, no root":    {"JOB_COMPLETION_INDEX=2 GCCL_SIZE=4", "GCCL_ROOT"},
		"rank is no number":       {"RANK=x WORLD_SIZE=4", "RANK=\"x\""},
		"rank is too great":       {"RANK=4 WORLD_SIZE=4", "RANK=4"},
		"negative":                {"RANK=-1 WORLD_SIZE=4", "RANK"},
		"timeout":                 {"GCCL_RANK=0 GCCL_SIZE=1 GCCL_TIMEOUT=soon", "GCCL_TIMEOUT"},
		"epoch":                   {"GCCL_RANK=0 GCCL_SIZE=1 GCCL_EPOCH=-1", "GCCL_EPOCH"},
		"ports":                   {"GCCL_RANK=0 GCCL_SIZE=1 GCCL_PORT_RANGE=9-7", "GCCL_PORT_RANGE"},
		"root with a wrong port":  {"GCCL_RANK=0 GCCL_SIZE=2 GCCL_ROOT=h:99999", "GCCL_ROOT"},
		"one host, nothing known": {"GCCL_RANK=0 GCCL_SIZE=2 GCCL_LOCAL_SIZE=2", "GCCL_ROOT=127.0.0.1:port"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := FromEnv(env(c.vars))
			assert.ErrorIs(t, err, ErrConfig)
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestEnvironmentOverrides(t *testing.T) {
	cfg, source, err := FromEnv(env(torch + "GCCL_SECRET=s GCCL_SOCKET_IFNAME=^docker GCCL_TIMEOUT=90 GCCL_PORT_RANGE=7000-7100 GCCL_ALLOW_LOOPBACK=1 GCCL_LOCAL_RANK=0 GCCL_LOCAL_SIZE=4"))
	require.NoError(t, err)
	assert.Equal(t, "s", cfg.Secret)
	assert.Equal(t, "^docker", cfg.Interface)
	assert.Equal(t, 90*time.Second, cfg.Timeout)
	assert.Equal(t, "7000-7100", cfg.ListenPorts)
	assert.Equal(t, "h0:7000-7100", cfg.Root)
	assert.True(t, cfg.AllowLoopback)
	assert.Equal(t, 4, cfg.LocalSize)
	assert.Equal(t, "GCCL_LOCAL_SIZE", source.From["LocalSize"])
	assert.Equal(t, "MASTER_ADDR", source.From["Root"])
	assert.NotContains(t, source.String(), "=s", "no secret in logs")
	for text, want := range map[string]time.Duration{"off": 0, "0": 0, "1.5": 1500 * time.Millisecond, "2m": 2 * time.Minute} {
		cfg, _, err := FromEnv(env(torch + "GCCL_TIMEOUT=" + text))
		require.NoError(t, err, text)
		assert.Equal(t, want, cfg.Timeout, text)
	}
	cfg, source, err = FromEnv(env("GCCL_RANK=0 GCCL_SIZE=1 NCCL_SOCKET_IFNAME==eth0"))
	require.NoError(t, err)
	assert.Equal(t, "=eth0", cfg.Interface)
	assert.Equal(t, "NCCL_SOCKET_IFNAME", source.From["Interface"])
}

func TestDerivedPorts(t *testing.T) {
	seen := make(map[string]bool)
	for i := range 1000 {
		var first, last int
		_, err := fmt.Sscanf(derivePorts(fmt.Sprint(i)), "%d-%d", &first, &last)
		require.NoError(t, err)
		assert.True(t, first >= 20000 && last < 32768 && last == first+7, "%d-%d", first, last)
		seen[derivePorts(fmt.Sprint(i))] = true
	}
	assert.Greater(t, len(seen), 600, "jobs spread over the ports")
	assert.Equal(t, "25992-25999", derivePorts("slurm/12.3"), "the rule is part of the protocol")
}

// What is in the environment of this test must not matter: every variable is looked up by the
// function.
func TestFromEnvUsesItsLookup(t *testing.T) {
	t.Setenv("RANK", "1")
	t.Setenv("WORLD_SIZE", "2")
	asked := make(map[string]bool)
	cfg, _, err := FromEnv(func(name string) (string, bool) { asked[name] = true; return "", false })
	require.NoError(t, err)
	assert.Equal(t, 1, cfg.Size)
	assert.Contains(t, slices.Collect(maps.Keys(asked)), "RANK")
	_, _, err = FromEnv(os.LookupEnv)
	assert.True(t, errors.Is(err, ErrConfig))
}
