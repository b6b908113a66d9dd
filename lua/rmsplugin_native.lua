-- rmsplugin_native: jobs of a site without VMs (platform native): plain jobs of Slurm behind the gate. Part of
-- rmsplugin.lua, which says more.
--
-- The script and the options stay as they are. What the engine counts with has to be true of each node of the job: so the
-- number of nodes is fixed here, and each node gets the same number of tasks, CPUs and memory. The engine reads them from
-- the job itself (scontrol show job). docs/user/native-jobs.md has a line for every option that is refused.

local options = require("rmsplugin_options")
local given16, given32, given64 = options.given16, options.given32, options.given64
local above16, above32, text = options.above16, options.above32, options.text
local integer, refuse = options.integer, options.refuse

local native = {}

local GENERIC = "a job that is paused keeps its GPUs and other generic resources from others: leave out --gres, --gpus and"
  .. " the like, or take another partition"
local THREADS = "the engine counts CPUs, not sockets, cores and threads: leave out --extra-node-info, --sockets-per-node,"
  .. " --cores-per-socket, --threads-per-core, --ntasks-per-core, --ntasks-per-socket and --hint, and ask for"
  .. " --cpus-per-task"
local function exclusive(value)
  -- 1 is --oversubscribe: a leave to share, as these jobs do.
  return given16(value) and value ~= 1
end
local function yes(value)
  return value == true or value == 1
end

-- Options that the engine cannot count with: the field, what is an option given, and what its user is told.
local REFUSED = {
  { "gres", text, GENERIC }, { "tres_per_job", text, GENERIC }, { "tres_per_node", text, GENERIC },
  { "tres_per_socket", text, GENERIC }, { "cpus_per_tres", text, GENERIC }, { "mem_per_tres", text, GENERIC },
  { "ntasks_per_gpu", above16, GENERIC }, { "ntasks_per_tres", above16, GENERIC },
  { "ntasks_per_core", above16, THREADS }, { "ntasks_per_socket", above16, THREADS },
  { "ntasks_per_board", above16, THREADS }, { "sockets_per_node", above16, THREADS },
  { "cores_per_socket", above16, THREADS }, { "threads_per_core", above16, THREADS },
  { "sockets_per_board", above16, THREADS }, { "boards_per_node", above16, THREADS },
  { "core_spec", given16, "--core-spec and --thread-spec take whole nodes: leave them out" },
  { "shared", exclusive, "--exclusive takes whole nodes, whatever the job asks for there: leave it out, and ask for the CPUs"
    .. " and the memory that the job needs" },
  { "reservation", text, "jobs of this partition wait for a turn of their own, which a reservation does not give: leave out"
    .. " --reservation, or take another partition" },
  { "requeue", function(value) return value == 0 end, "--no-requeue cannot be kept: a job that is started out of turn may"
    .. " be sent back to the queue before its script has begun; leave it out, or take another partition" },
  { "cron_job", yes, "scrontab cannot wait for a turn: have it start a job of another partition that submits this one" },
}

local function check_options(job_desc)
  if given32(job_desc.het_job_offset) then
    refuse("heterogeneous jobs cannot be paused as one: submit one job for each part, and tie them with --dependency")
  end
  if not text(job_desc.script) then
    refuse("salloc and srun cannot wait for a turn: submit a script with sbatch; srun inside the script starts steps")
  end
  options.refuse_asked(job_desc, REFUSED)
  if text(job_desc.features) then
    options.check_features(job_desc.features)
  end
  for option, field in pairs({ ["--nodelist"] = "req_nodes", ["--exclude"] = "exc_nodes" }) do
    if text(job_desc[field]) then
      options.count_hosts(option, job_desc[field])
    end
  end
end

-- How many nodes: as the user says; else as many as --ntasks-per-node makes of the tasks; else one.
local function nodes_of(job_desc, ntasks, per_node)
  if above32(job_desc.min_nodes) then
    return job_desc.min_nodes
  end
  if ntasks and per_node then
    return math.floor((ntasks + per_node - 1) / per_node)
  end
  return 1
end

-- The memory of each node; nil where the user named none, and the site leaves it to Slurm (DefMemPerCPU, DefMemPerNode).
local function memory_of(job_desc, cpus, config)
  local memory
  -- pn_min_memory holds both kinds, but a double cannot hold its flag bit and its value at once.
  if given64(job_desc.min_mem_per_cpu) then
    memory = job_desc.min_mem_per_cpu * cpus
  elseif given64(job_desc.min_mem_per_node) then
    memory = job_desc.min_mem_per_node
  elseif config.default_memory_per_cpu_mib then
    memory = config.default_memory_per_cpu_mib * cpus
  end
  if memory and memory < 1 then
    refuse("--mem=0 asks for all memory of a node, and jobs share their nodes: say how much the job needs on each, e.g."
      .. " --mem=2G")
  end
  return memory
end

local function check_tasks(job_desc, ntasks, nodes, per_node, cpus_per_task)
  if above32(job_desc.num_tasks) and above32(job_desc.min_cpus) and job_desc.min_cpus < ntasks * cpus_per_task then
    refuse("--overcommit has several tasks on one CPU, and the engine counts CPUs: leave it out, or ask for fewer --ntasks")
  end
  if ntasks < nodes or ntasks % nodes > 0 then
    local even = math.max(1, math.floor(ntasks / nodes)) * nodes
    refuse("%s tasks cannot be the same number on each of %s nodes, as the engine counts: ask for %s or %s tasks, or for"
      .. " --nodes and --ntasks-per-node", integer(ntasks), integer(nodes), integer(even), integer(even + nodes))
  end
  local cpus = ntasks / nodes * cpus_per_task
  if per_node and per_node < ntasks / nodes then
    refuse("%s tasks on %s nodes are more than --ntasks-per-node=%s: ask for more --nodes", integer(ntasks), integer(nodes),
      integer(per_node))
  end
  if above16(job_desc.pn_min_cpus) and job_desc.pn_min_cpus > cpus then
    refuse("--mincpus=%s is more than the %s CPUs of the tasks on each node: ask for --cpus-per-task",
      integer(job_desc.pn_min_cpus), integer(cpus))
  end
  return cpus
end

local function check_limits(nodes, cpus, memory, config)
  if config.max_vm_cpus and cpus > config.max_vm_cpus then
    refuse("no node has %s CPUs for a job (the most is %s): spread the tasks over more --nodes, or ask for fewer"
      .. " --cpus-per-task", integer(cpus), integer(config.max_vm_cpus))
  end
  if config.max_vm_memory_mib and memory and memory > config.max_vm_memory_mib then
    refuse("no node has %s MiB for a job (the most is %s): ask for less --mem, or spread the tasks over more --nodes",
      integer(memory), integer(config.max_vm_memory_mib))
  end
  if config.max_vms and nodes > config.max_vms then
    refuse("%s nodes are more than the %s that a job can have here: ask for fewer --nodes", integer(nodes),
      integer(config.max_vms))
  end
  if config.max_total_cpus and nodes * cpus > config.max_total_cpus then
    refuse("%s nodes of %s CPUs are more than the %s CPUs that there are: ask for fewer tasks or CPUs", integer(nodes),
      integer(cpus), integer(config.max_total_cpus))
  end
  if config.max_total_memory_mib and memory and nodes * memory > config.max_total_memory_mib then
    refuse("%s nodes of %s MiB are more than the %s MiB that there are: ask for less memory or fewer nodes", integer(nodes),
      integer(memory), integer(config.max_total_memory_mib))
  end
end

-- Puts the job behind the gate, with the same on each of its nodes.
function native.gate(job_desc, config)
  check_options(job_desc)
  local cpus_per_task = options.cpus_per_task(job_desc)
  local per_node = above16(job_desc.ntasks_per_node) and job_desc.ntasks_per_node or nil
  local ntasks = above32(job_desc.num_tasks) and job_desc.num_tasks or nil
  local nodes = nodes_of(job_desc, ntasks, per_node)
  ntasks = ntasks or nodes * (per_node or 1)
  local cpus = check_tasks(job_desc, ntasks, nodes, per_node, cpus_per_task)
  local memory = memory_of(job_desc, cpus, config)
  check_limits(nodes, cpus, memory, config)
  local licenses = options.gated(job_desc.licenses, config.gate)
  local own = options.users_script(job_desc.script)
  if own ~= job_desc.script then
    job_desc.script = own -- a copy of a vjob's script, from a site with VMs
  end
  job_desc.licenses = licenses
  job_desc.min_nodes = nodes
  job_desc.max_nodes = nodes
  job_desc.num_tasks = ntasks
  job_desc.cpus_per_task = cpus_per_task
  job_desc.min_cpus = nodes * cpus
  if nodes > 1 then
    job_desc.ntasks_per_node = ntasks / nodes -- or Slurm may put three tasks of four on one of two nodes
  end
  if memory then
    job_desc.min_mem_per_node = memory
  end
  job_desc.requeue = 1 -- a node that fails loses the job nothing but time
end

return native
