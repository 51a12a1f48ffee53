// Package examples holds the manifests and scripts beside it against what the library reads.
package examples

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// Parts of Kubernetes' objects; what a manifest says besides is refused where it is the container's or
// the job's, so that a slip of the pen is found.
type (
	object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       yaml.Node
	}
	service struct {
		ClusterIP                string `yaml:"clusterIP"`
		PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
		Selector                 map[string]string
	}
	job struct {
		CompletionMode           string `yaml:"completionMode"`
		Completions, Parallelism int
		BackoffLimit             *int `yaml:"backoffLimit"`
		Template                 struct{ Spec pod }
	}
	pod struct {
		Subdomain     string
		RestartPolicy string `yaml:"restartPolicy"`
		Containers    []container
	}
	container struct {
		Name, Image     string
		Command         []string
		Env             []variable
		SecurityContext struct {
			RunAsUser int `yaml:"runAsUser"`
		} `yaml:"securityContext"`
	}
	variable struct {
		Name, Value string
		ValueFrom   map[string]map[string]string `yaml:"valueFrom"`
	}
)

// read decodes all documents of a manifest.
func read(t *testing.T, name string) (list []object) {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	for dec := yaml.NewDecoder(f); ; {
		var o object
		if err := dec.Decode(&o); err != nil {
			require.EqualError(t, err, "EOF", name)
			return list
		}
		list = append(list, o)
	}
}

// decode reads a spec and refuses fields that are not known here.
func decode(t *testing.T, n yaml.Node, into any) {
	t.Helper()
	b, err := yaml.Marshal(&n)
	require.NoError(t, err)
	dec := yaml.NewDecoder(strings.NewReader(string(b)))
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(into))
}

// environment is what a container's ranks see, with what the cluster and the launcher add.
func environment(t *testing.T, c container, more map[string]string) func(string) (string, bool) {
	t.Helper()
	env := map[string]string{}
	for _, v := range c.Env {
		require.NotContains(t, env, v.Name)
		require.True(t, (v.Value == "") != (v.ValueFrom == nil), "%s has a value and a source, or neither", v.Name)
		if env[v.Name] = v.Value; v.Value == "" {
			env[v.Name] = "from the cluster"
		}
		require.Empty(t, collective.Unknown([]string{v.Name + "=" + env[v.Name]}))
	}
	for n, v := range more {
		env[n] = v
	}
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

// ranks holds an indexed job against what its pods make of it. root is the name of pod 0.
func ranks(t *testing.T, j job, root string) {
	t.Helper()
	require.Equal(t, "Indexed", j.CompletionMode)
	require.Equal(t, j.Completions, j.Parallelism, "ranks that wait for others that wait for room")
	require.Zero(t, *j.BackoffLimit)
	require.Equal(t, "Never", j.Template.Spec.RestartPolicy)
	require.Len(t, j.Template.Spec.Containers, 1)
	c := j.Template.Spec.Containers[0]
	require.Equal(t, []string{"allreduce", "-n", "0"}, c.Command)
	for r := range j.Completions {
		cfg, source, err := bootstrap.FromEnv(environment(t, c, map[string]string{"JOB_COMPLETION_INDEX": fmt.Sprint(r)}))
		require.NoError(t, err)
		require.Equal(t, "kubernetes", source.Launcher)
		require.Equal(t, []int{r, j.Completions, 0, 1}, []int{cfg.Rank, cfg.Size, cfg.LocalRank, cfg.LocalSize})
		host, _, err := net.SplitHostPort(cfg.Root)
		require.NoError(t, err)
		require.Equal(t, root, host)
		require.NotEmpty(t, cfg.Secret)
		require.NotEmpty(t, cfg.RunID)
	}
}

func TestIndexedJob(t *testing.T) {
	objects := read(t, "kubernetes/indexed-job.yaml")
	require.Len(t, objects, 2)
	var s service
	decode(t, objects[0].Spec, &s)
	require.Equal(t, []string{"v1", "Service"}, []string{objects[0].APIVersion, objects[0].Kind})
	require.Equal(t, "None", s.ClusterIP)
	require.True(t, s.PublishNotReadyAddresses)
	name := objects[1].Metadata.Name
	require.Equal(t, map[string]string{"job-name": name}, s.Selector)
	var j job
	decode(t, objects[1].Spec, &j)
	require.Equal(t, []string{"batch/v1", "Job"}, []string{objects[1].APIVersion, objects[1].Kind})
	require.Equal(t, objects[0].Metadata.Name, j.Template.Spec.Subdomain)
	ranks(t, j, name+"-0."+j.Template.Spec.Subdomain)
}

func TestJobSet(t *testing.T) {
	objects := read(t, "kubernetes/jobset.yaml")
	require.Len(t, objects, 1)
	o := objects[0]
	require.Equal(t, []string{"jobset.x-k8s.io/v1alpha2", "JobSet"}, []string{o.APIVersion, o.Kind})
	var s struct {
		Network struct {
			EnableDNSHostnames       bool `yaml:"enableDNSHostnames"`
			PublishNotReadyAddresses bool `yaml:"publishNotReadyAddresses"`
			Subdomain                string
		}
		FailurePolicy struct {
			MaxRestarts int `yaml:"maxRestarts"`
		} `yaml:"failurePolicy"`
		ReplicatedJobs []struct {
			Name     string
			Replicas int
			Template struct{ Spec job }
		} `yaml:"replicatedJobs"`
	}
	decode(t, o.Spec, &s)
	require.True(t, s.Network.EnableDNSHostnames && s.Network.PublishNotReadyAddresses)
	require.Len(t, s.ReplicatedJobs, 1)
	r := s.ReplicatedJobs[0]
	require.Equal(t, 1, r.Replicas)
	ranks(t, r.Template.Spec, fmt.Sprintf("%s-%s-0-0.%s", o.Metadata.Name, r.Name, s.Network.Subdomain))
}

func TestMPIJob(t *testing.T) {
	objects := read(t, "kubernetes/mpijob.yaml")
	require.Len(t, objects, 1)
	o := objects[0]
	require.Equal(t, []string{"kubeflow.org/v2beta1", "MPIJob"}, []string{o.APIVersion, o.Kind})
	type replicas struct {
		Replicas      int
		RestartPolicy string `yaml:"restartPolicy"`
		Template      struct{ Spec pod }
	}
	var s struct {
		SlotsPerWorker   int    `yaml:"slotsPerWorker"`
		SSHAuthMountPath string `yaml:"sshAuthMountPath"`
		RunPolicy        struct {
			CleanPodPolicy string `yaml:"cleanPodPolicy"`
			BackoffLimit   int    `yaml:"backoffLimit"`
		} `yaml:"runPolicy"`
		MPIReplicaSpecs struct {
			Launcher replicas `yaml:"Launcher"`
			Worker   replicas `yaml:"Worker"`
		} `yaml:"mpiReplicaSpecs"`
	}
	decode(t, o.Spec, &s)
	launcher, worker := s.MPIReplicaSpecs.Launcher.Template.Spec.Containers[0], s.MPIReplicaSpecs.Worker.Template.Spec.Containers[0]
	require.Equal(t, launcher.Image, worker.Image)
	n := slices.Index(launcher.Command, "-n")
	require.Equal(t, fmt.Sprint(s.SlotsPerWorker*s.MPIReplicaSpecs.Worker.Replicas), launcher.Command[n+1])
	for _, v := range launcher.Env {
		require.True(t, strings.Contains(strings.Join(launcher.Command, " "), "-x "+v.Name+" "), "mpirun does not pass on %s", v.Name)
	}
	require.Equal(t, []string{"allreduce", "-n", "0"}, launcher.Command[len(launcher.Command)-3:])
	cfg, source, err := bootstrap.FromEnv(environment(t, launcher, map[string]string{
		"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
		"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.9:1", "PMIX_NAMESPACE": "1",
	}))
	require.NoError(t, err)
	require.Equal(t, "openmpi", source.Launcher)
	require.False(t, cfg.RootIsGuess)
	host, _, err := net.SplitHostPort(cfg.Root)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("%s-worker-0.%[1]s", o.Metadata.Name), host)
}

func TestSlurmScript(t *testing.T) {
	const name = "slurm/allreduce.sbatch"
	if bash, err := exec.LookPath("bash"); err == nil {
		out, err := exec.Command(bash, "-n", name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(b), "#!/bin/bash\n"))
	for _, v := range regexp.MustCompile(`\bGCCL_\w+`).FindAllString(string(b), -1) {
		require.Empty(t, collective.Unknown([]string{v + "=x"}))
	}
	// sbatch reads its options up to the first command.
	options, _, _ := strings.Cut(string(b), "\nset ")
	require.Equal(t, strings.Count(string(b), "#SBATCH"), strings.Count(options, "#SBATCH"))
	require.Contains(t, string(b), "exec srun --mpi=pmi2 ")
}

// The variables that documentation and manifests name are read.
func TestDocumentedVariables(t *testing.T) {
	b, err := os.ReadFile("../docs/launchers.md")
	require.NoError(t, err)
	names := regexp.MustCompile(`\bGCCL_[A-Z_]+\b`).FindAllString(string(b), -1)
	require.NotEmpty(t, names)
	for _, n := range names {
		require.Empty(t, collective.Unknown([]string{n + "=x"}), "docs/launchers.md")
	}
}
