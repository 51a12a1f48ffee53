package bootstrap

import (
	"fmt"
	"strconv"

	"github.com/gccl/gccl/bootstrap/internal/nodelist"
)

// launchers are asked in this order; see FromEnv.
var launchers = []struct {
	name string
	read func(*environment) (bool, error)
}{
	{"gccl", (*environment).readOwn},
	{"torchrun", (*environment).readTorch},
	{"openmpi", (*environment).readOpenMPI},
	{"pmi", (*environment).readPMI},
	{"slurm", (*environment).readSlurm},
	{"horovod", (*environment).readHorovod},
	{"lws", (*environment).readLeaderWorkerSet},
	{"kubernetes", (*environment).readIndexedJob},
}

func (e *environment) readOwn() (bool, error) {
	if _, ok := e.get("GCCL_RANK"); !ok {
		return false, nil // GCCL_SIZE alone completes a Kubernetes job, see readIndexedJob
	}
	if _, err := e.pair("GCCL_RANK", "GCCL_SIZE"); err != nil {
		return false, err
	}
	e.cfg.LocalSize = 0
	return true, nil
}

// readTorch reads the variables of torchrun, which Ray Train and PyTorchJob set too.
func (e *environment) readTorch() (bool, error) {
	if found, err := e.pair("RANK", "WORLD_SIZE"); !found || err != nil {
		return false, err
	}
	if err := e.local("LOCAL_RANK", "LOCAL_WORLD_SIZE"); err != nil {
		return false, err
	}
	addr, _ := e.get("MASTER_ADDR")
	port, _ := e.get("MASTER_PORT")
	run, _ := e.get("TORCHELASTIC_RUN_ID")
	e.run("TORCHELASTIC_RUN_ID, MASTER_PORT", fmt.Sprintf("torch/%s/%s", run, port))
	if err := e.epoch("TORCHELASTIC_RESTART_COUNT"); err != nil {
		return false, err
	}
	if addr != "" {
		// MASTER_PORT itself belongs to torch's own store, and its neighbours may to other jobs'.
		e.root("MASTER_ADDR", addr)
	}
	e.hint = "MASTER_ADDR is missing"
	return true, nil
}

func (e *environment) readOpenMPI() (bool, error) {
	if found, err := e.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"); !found || err != nil {
		return false, err
	}
	if err := e.local("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"); err != nil {
		return false, err
	}
	if job, name := e.first("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"); job != "" {
		e.run(name, "openmpi/"+job)
	}
	// mpirun tells no rank's address, only its own, and mostly rank 0 runs beside it.
	if uri, ok := e.get("OMPI_MCA_orte_hnp_uri"); ok && e.cfg.LocalSize != e.cfg.Size {
		hosts, err := hostsOfURI(uri)
		if err != nil {
			return false, fmt.Errorf("OMPI_MCA_orte_hnp_uri: %w", err)
		}
		e.root("OMPI_MCA_orte_hnp_uri", hosts...)
		e.cfg.RootIsGuess = true
	}
	return true, nil
}

// readPMI reads what Hydra (MPICH, Intel MPI) and srun --mpi=pmi2 leave.
func (e *environment) readPMI() (bool, error) {
	if found, err := e.pair("PMI_RANK", "PMI_SIZE"); !found || err != nil {
		return false, err
	}
	e.cfg.LocalSize = 0
	if _, hydra := e.get("MPI_LOCALRANKID"); hydra {
		// Inside a Slurm job, Slurm's variables describe Hydra's proxies, not this process.
		if err := e.local("MPI_LOCALRANKID", "MPI_LOCALNRANKS"); err != nil {
			return false, err
		}
	} else if e.inStep() {
		if err := e.readSlurmPlace(); err != nil {
			return false, err
		}
	}
	if text, ok := e.get("PMI_FD"); ok {
		fd, err := strconv.Atoi(text)
		if err != nil || fd < 3 {
			return false, fmt.Errorf("PMI_FD=%q is no file descriptor", text)
		}
		e.cfg.PMIFD, e.source.From["PMIFD"] = fd, "PMI_FD"
	}
	if job, name := e.first("PMI_JOBID", "HYDRA_JOBID"); job != "" {
		e.run(name, "pmi/"+job)
	}
	return true, nil
}

// lastStep is the greatest number of a Slurm step that srun made; above are the batch script, the
// interactive shell and the like.
const lastStep = 0xfffffff0

// inStep says whether this process is a task of a Slurm step. A batch script sees SLURM_PROCID too.
func (e *environment) inStep() bool {
	text, _ := e.get("SLURM_STEP_ID")
	step, err := strconv.ParseUint(text, 10, 32)
	_, hasRank := e.get("SLURM_PROCID")
	return err == nil && step < lastStep && hasRank
}

func (e *environment) readSlurm() (bool, error) {
	if !e.inStep() {
		return false, nil
	}
	_, size := e.first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	if size == "" {
		return false, fmt.Errorf("SLURM_PROCID is set and SLURM_STEP_NUM_TASKS is missing")
	}
	if _, err := e.pair("SLURM_PROCID", size); err != nil {
		return false, err
	}
	e.cfg.LocalSize = 0
	if err := e.readSlurmPlace(); err != nil {
		return false, err
	}
	job, _ := e.first("SLURM_JOB_ID", "SLURM_JOBID")
	step, _ := e.get("SLURM_STEP_ID")
	if job == "" {
		return false, fmt.Errorf("SLURM_STEP_ID is set and SLURM_JOB_ID is missing")
	}
	e.run("SLURM_JOB_ID, SLURM_STEP_ID", "slurm/"+job+"."+step)
	if err := e.epoch("SLURM_RESTART_COUNT"); err != nil {
		return false, err
	}
	if list, name := e.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"); list != "" && e.nodes != 1 {
		hosts, err := nodelist.Expand(list)
		if err != nil {
			return false, fmt.Errorf("%s: %w", name, err)
		}
		e.root(name, hosts[0])
		e.cfg.RootIsGuess = true // --distribution=arbitrary may put rank 0 elsewhere
	}
	return true, nil
}

// readSlurmPlace reads the place on the host from a step's variables.
func (e *environment) readSlurmPlace() error {
	if err := e.number("LocalRank", &e.cfg.LocalRank, "SLURM_LOCALID"); err != nil {
		return err
	}
	if err := e.number("Node", &e.node, "SLURM_NODEID"); err != nil {
		return err
	}
	if err := e.number("Nodes", &e.nodes, "SLURM_STEP_NUM_NODES"); err != nil {
		return err
	}
	if tasks, name := e.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"); tasks != "" {
		n, err := nodelist.Tasks(tasks, e.node)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		e.cfg.LocalSize, e.source.From["LocalSize"] = n, name
	}
	return nil
}

func (e *environment) readHorovod() (bool, error) {
	if found, err := e.pair("HOROVOD_RANK", "HOROVOD_SIZE"); !found || err != nil {
		return false, err
	}
	if err := e.local("HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"); err != nil {
		return false, err
	}
	addr, _ := e.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
	port, _ := e.get("HOROVOD_GLOO_RENDEZVOUS_PORT")
	if addr != "" && port != "" {
		e.run("HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT", "horovod/"+addr+"/"+port)
	}
	return true, nil
}

func (e *environment) readLeaderWorkerSet() (bool, error) {
	if found, err := e.pair("LWS_WORKER_INDEX", "LWS_GROUP_SIZE"); !found || err != nil {
		return false, err
	}
	e.cfg.LocalSize = 1
	leader, ok := e.get("LWS_LEADER_ADDRESS")
	if !ok {
		return false, fmt.Errorf("LWS_WORKER_INDEX is set and LWS_LEADER_ADDRESS is missing")
	}
	e.run("LWS_LEADER_ADDRESS", "lws/"+leader)
	e.root("LWS_LEADER_ADDRESS", leader)
	return true, nil
}

// readIndexedJob reads a Kubernetes indexed job, whose environment has the index and not the number of
// completions.
func (e *environment) readIndexedJob() (bool, error) {
	if _, ok := e.get("JOB_COMPLETION_INDEX"); !ok {
		return false, nil
	}
	if _, ok := e.get("GCCL_SIZE"); !ok {
		return false, fmt.Errorf("JOB_COMPLETION_INDEX is set and GCCL_SIZE is missing: " +
			"pass the job's number of completions in it")
	}
	if _, err := e.pair("JOB_COMPLETION_INDEX", "GCCL_SIZE"); err != nil {
		return false, err
	}
	e.cfg.LocalSize = 1
	e.hint = "pass the pod of index 0 and a port, like JOB-0.SUBDOMAIN:29400"
	return true, nil
}
