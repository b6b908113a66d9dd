-- rmsplugin: the part of the plugin that runs inside slurmctld (job_submit/lua).
--
-- A batch job that is submitted to a vjob partition is checked, held, and wrapped: one line is put before its script, so
-- that slurmd starts the plugin's wrapper, which runs the rest of the script inside the job's virtual machines. All other
-- jobs pass untouched. slurmctld waits for this code, so it contacts nobody and reads no file after it is loaded.
--
-- Runs on Lua 5.1 (Slurm of Debian 12) to 5.4. Slurm lets a job PASS when this code raises an error, so every entry is
-- guarded: an error rejects a vjob job, which must never run outside a VM, and lets every other job pass.

local rmsplugin = {}

-- Slurm does not look at the dependencies of a held job. So a job with some is kept back by a begin time instead: the
-- user's own, or now, plus ten years. rmsplugin/adapters/rms/slurm_text.py knows this number, and takes it off again.
local GATE_S = 3650 * 86400

-- The kernel cuts the interpreter's line off behind 255 bytes.
local MAX_WRAPPER_LINE = 250

-- Whether the user said something. Where they did not, Slurm puts the largest-but-one number of the field's width (or
-- nothing, depending on field and release); in Lua 5.1 all numbers are doubles, so the widest is compared with care.
local function given16(value)
  return value ~= nil and value < 65534
end

local function given32(value)
  return value ~= nil and value < 4294967294
end

local function given64(value)
  return value ~= nil and value < 1.8e19
end

local function text(value)
  return type(value) == "string" and value ~= ""
end

local function ceil_div(a, b)
  return math.floor((a + b - 1) / b)
end

local function integer(value)
  return string.format("%.0f", value)
end

-- A refusal: raised by the checks, and told to the user as it is. Everything else that is raised is a fault of ours.
local function refuse(format, ...)
  error({ refusal = string.format(format, ...) }, 0)
end

-- The names in "a,b"; a job without one goes to the default partition.
local function partitions_of(name, part_list)
  local names = {}
  if text(name) then
    for part in string.gmatch(name, "[^,]+") do
      names[#names + 1] = part
    end
  else
    for part_name, part in pairs(part_list or {}) do
      if part.flag_default == 1 then
        names[#names + 1] = part_name
      end
    end
  end
  return names
end

-- The uid that slurmctld runs as; nil when it cannot be told. Read once, when slurmctld loads this file.
local function own_uid()
  local file = io.open("/proc/self/status", "r")
  if file == nil then
    return nil
  end
  local uid = string.match(file:read("*a") or "", "\nUid:%s+(%d+)")
  file:close()
  return tonumber(uid)
end

-- How many VMs, and what each of them gets. `--nodes` counts VMs; without it there is one VM a task, or one for every
-- `--ntasks-per-node` tasks. `--mem` is what a node gets, and a VM is a node to its job; only where the user named neither
-- nodes nor tasks per node would Slurm give that memory to all tasks together, so there each VM gets its share.
local function geometry_of(job_desc, config)
  local cpus_per_task = given16(job_desc.cpus_per_task) and job_desc.cpus_per_task or 1
  local per_node = given16(job_desc.ntasks_per_node) and job_desc.ntasks_per_node > 0 and job_desc.ntasks_per_node or nil
  local ntasks = given32(job_desc.num_tasks) and job_desc.num_tasks or nil
  local vms, tasks_per_vm
  local share = 1
  if given32(job_desc.min_nodes) and job_desc.min_nodes > 0 then
    vms = job_desc.min_nodes
    ntasks = ntasks or vms * (per_node or 1)
    tasks_per_vm = ceil_div(ntasks, vms)
  elseif per_node ~= nil then
    ntasks = ntasks or per_node
    vms = ceil_div(ntasks, per_node)
    tasks_per_vm = ceil_div(ntasks, vms)
  else
    ntasks = ntasks or 1
    vms = ntasks
    tasks_per_vm = 1
    share = vms
  end
  if vms < 1 or ntasks < vms then
    refuse("%s tasks cannot use %s VMs: ask for at least one task a VM, or for fewer --nodes",
      integer(ntasks), integer(vms))
  end

  local cpus = tasks_per_vm * cpus_per_task
  if given16(job_desc.pn_min_cpus) and job_desc.pn_min_cpus > cpus then
    cpus = job_desc.pn_min_cpus
  end

  local memory
  -- pn_min_memory holds both kinds, but a double cannot hold its flag bit and its value at once.
  if given64(job_desc.min_mem_per_cpu) then
    memory = job_desc.min_mem_per_cpu * cpus
  elseif given64(job_desc.min_mem_per_node) then
    memory = ceil_div(job_desc.min_mem_per_node, share)
  else
    memory = config.default_memory_per_cpu_mib * cpus
  end
  if memory < 1 then
    refuse("--mem=0 asks for all memory of a node, and a VM has no such thing: say how much each VM needs, e.g. --mem=2G")
  end
  return { vms = vms, cpus = cpus, memory = memory, ntasks = ntasks, cpus_per_task = cpus_per_task }
end

local function check_limits(geometry, config)
  local vms, cpus, memory = geometry.vms, geometry.cpus, geometry.memory
  if config.max_vms and vms > config.max_vms then
    refuse("%s VMs are more than the %s that a job can have here: ask for fewer --nodes, or fewer tasks with more"
      .. " --cpus-per-task", integer(vms), integer(config.max_vms))
  end
  if config.max_vm_cpus and cpus > config.max_vm_cpus then
    refuse("no node can host a VM of %s CPUs (the most is %s): spread the tasks over more --nodes, or ask for fewer"
      .. " --cpus-per-task", integer(cpus), integer(config.max_vm_cpus))
  end
  if memory < config.min_vm_memory_mib then
    refuse("a VM of %s MiB is too small to boot (the least is %s): ask for more --mem",
      integer(memory), integer(config.min_vm_memory_mib))
  end
  if config.max_vm_memory_mib and memory > config.max_vm_memory_mib then
    refuse("no node can host a VM of %s MiB (the most is %s): ask for less --mem, or spread the tasks over more --nodes",
      integer(memory), integer(config.max_vm_memory_mib))
  end
  if config.max_total_cpus and vms * cpus > config.max_total_cpus then
    refuse("%s VMs of %s CPUs are more than the %s CPUs that there are: ask for fewer tasks or CPUs",
      integer(vms), integer(cpus), integer(config.max_total_cpus))
  end
  if config.max_total_memory_mib and vms * memory > config.max_total_memory_mib then
    refuse("%s VMs of %s MiB are more than the %s MiB that there are: ask for less memory or fewer VMs",
      integer(vms), integer(memory), integer(config.max_total_memory_mib))
  end
end

local function image_of(job_desc, config)
  local environment = job_desc.environment
  local image = environment and environment["RMSPLUGIN_IMAGE"]
  if not text(image) then
    return "default"
  end
  for _, name in ipairs(config.images) do
    if name == image then
      return name
    end
  end
  refuse("RMSPLUGIN_IMAGE=%s: there is no such image here; there are: %s", image, table.concat(config.images, ", "))
end

-- What a list of resources has besides CPUs: since 23.11 Slurm says --cpus-per-task=2 as tres_per_task "cpu=2", too.
local function without_cpus(list)
  local others = {}
  for part in string.gmatch(list or "", "[^,]+") do
    if not string.match(part, "^cpu[:=]%d+$") then
      others[#others + 1] = part
    end
  end
  return table.concat(others, ",")
end

-- Options whose meaning a VM cannot keep.
local function check_options(job_desc)
  if given32(job_desc.het_job_offset) then
    refuse("heterogeneous jobs cannot run in VMs: submit one job for each part, and tie them with --dependency")
  end
  if not text(job_desc.script) then
    refuse("salloc and srun cannot start VMs: submit a script with sbatch; `rmsplugin ssh JOBID` then gives a shell in it,"
      .. " and srun inside the script starts tasks in its VMs")
  end
  for _, field in ipairs({ "gres", "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task", "cpus_per_tres",
    "mem_per_tres" }) do
    if text(without_cpus(job_desc[field])) then
      refuse("VMs have no GPUs or other generic resources: leave out --gres, --gpus and the like, or take another"
        .. " partition")
    end
  end
  if text(job_desc.req_nodes) or text(job_desc.exc_nodes) then
    refuse("VMs move between nodes: leave out --nodelist and --exclude")
  end
  if job_desc.begin_time ~= nil and job_desc.begin_time >= os.time() + GATE_S then
    refuse("--begin is more than ten years ahead")
  end
  if job_desc.priority == 0 then
    refuse("jobs of this partition are held and released by the plugin, so --hold has no effect: leave it out, or use"
      .. " --begin or --dependency")
  end
end

-- From here on the job is Slurm's side of a vjob: a wrapper that needs next to nothing, placed where the engine says.
local function wrap(job_desc, geometry, image, config)
  local line = string.format("#!%s vms=%s,cpus=%s,memory=%s,ntasks=%s,cpus_per_task=%s,image=%s", config.wrapper,
    integer(geometry.vms), integer(geometry.cpus), integer(geometry.memory), integer(geometry.ntasks),
    integer(geometry.cpus_per_task), image)
  if #line > MAX_WRAPPER_LINE then
    error("the path of the wrapper is too long: " .. config.wrapper)
  end
  job_desc.script = line .. "\n" .. job_desc.script
  if text(job_desc.dependency) then
    local begin = job_desc.begin_time or 0
    job_desc.begin_time = math.max(begin, os.time()) + GATE_S
  else
    job_desc.priority = 0
  end
  job_desc.pn_min_memory = config.slurm_memory_mib
  -- --exclusive asks for what every VM has; on Slurm's side it would take whole nodes.
  job_desc.shared = slurm.NO_VAL16
  job_desc.ntasks_per_node = slurm.NO_VAL16
  job_desc.pn_min_cpus = slurm.NO_VAL16
  -- One node when one can hold all CPUs, so that accounting shows what was asked for; else as few as Slurm needs.
  local total = geometry.vms * geometry.cpus
  job_desc.min_cpus = total
  job_desc.min_nodes = 1
  if config.max_vm_cpus == nil or total <= config.max_vm_cpus then
    job_desc.max_nodes = 1
  else
    job_desc.max_nodes = slurm.NO_VAL
  end
  if not given16(job_desc.requeue) then
    -- A requeue loses nothing, and the engine needs it when a batch host is lost. --no-requeue stays the user's choice.
    job_desc.requeue = 1
  end
end

-- What a user may not change on a vjob, and how it is called where they tried to. The plugin holds and releases it, and
-- its VMs are what they were at submission. `scontrol update nice=` is here because Slurm lifts the hold with it.
local FIXED = {
  { "num_tasks", "NumTasks", given32 }, { "min_cpus", "NumCPUs", given32 }, { "max_cpus", "NumCPUs", given32 },
  { "min_nodes", "NumNodes", given32 }, { "max_nodes", "NumNodes", given32 }, { "nice", "Nice", given32 },
  { "cpus_per_task", "CPUs/Task", given16 }, { "pn_min_cpus", "MinCPUsNode", given16 },
  { "pn_min_memory", "MinMemory", given64 }, { "ntasks_per_node", "TasksPerNode", given16 },
  { "shared", "OverSubscribe", given16 },
}
local FIXED_TEXT = {
  { "req_nodes", "ReqNodeList" }, { "exc_nodes", "ExcNodeList" }, { "gres", "Gres" }, { "tres_per_job", "TresPerJob" },
  { "tres_per_node", "TresPerNode" }, { "tres_per_socket", "TresPerSocket" }, { "tres_per_task", "TresPerTask" },
  { "cpus_per_tres", "CpusPerTres" }, { "mem_per_tres", "MemPerTres" },
}

local function check_changes(job_desc, job_rec)
  -- `scontrol release` asks for the priority INFINITE, one more than what means nothing was asked.
  if job_desc.priority ~= nil and job_desc.priority ~= slurm.NO_VAL then
    refuse("jobs that run in VMs are held and released by the plugin alone: use --begin or --dependency to have one"
      .. " wait, or cancel it")
  end
  if job_rec.priority ~= 0 and job_desc.begin_time ~= nil and job_desc.begin_time ~= 0 then
    refuse("the start time of a job that runs in VMs and waits for another job cannot be changed: cancel it and submit it"
      .. " anew")
  end
  for _, entry in ipairs(FIXED) do
    if entry[3](job_desc[entry[1]]) then
      refuse("%s of a job that runs in VMs cannot be changed by its user: cancel it and submit it anew, or ask an"
        .. " administrator", entry[2])
    end
  end
  for _, entry in ipairs(FIXED_TEXT) do
    if type(job_desc[entry[1]]) == "string" then
      refuse("%s of a job that runs in VMs cannot be changed by its user: cancel it and submit it anew, or ask an"
        .. " administrator", entry[2])
    end
  end
end

local function check_config(config)
  if not text(config.wrapper) or not string.match(config.wrapper, "^/[^%s,]+$") then
    error("`wrapper` must be the absolute path of rmsplugin-job, without blanks")
  end
  for _, name in ipairs(config.images) do
    if not string.match(name, "^[%w_-]+$") or #name > 32 then
      error("`images` has a name that is not made of letters, digits, _ and -: " .. tostring(name))
    end
  end
end

-- Returns the two entries for job_submit.lua. Keys of `site`:
--   partitions                 the vjob partitions, as in the plugin's settings (required)
--   wrapper                    absolute path of rmsplugin-job on the batch hosts (required)
--   images                     names of the guest images (default {"default"})
--   default_memory_per_cpu_mib memory for each CPU of a VM when the user names none (default 1024)
--   min_vm_memory_mib          what the guest images need to boot (default 96, enough for that of contrib/guest-image)
--   slurm_memory_mib           what Slurm sets aside for the wrapper on its node (default 64)
--   max_vms, max_vm_cpus, max_vm_memory_mib, max_total_cpus, max_total_memory_mib
--                              what one job, and one VM, can have at most (default: no limit). Set max_vm_cpus and
--                              max_vm_memory_mib to what the largest node can host.
--   slurm_uid                  uid of SlurmUser (default: who slurmctld runs as)
--   broken                     why the site's settings could not be read: every vjob job is refused with it
function rmsplugin.new(site)
  local config = {}
  for key, value in pairs(site) do
    config[key] = value
  end
  config.images = config.images or { "default" }
  config.default_memory_per_cpu_mib = config.default_memory_per_cpu_mib or 1024
  config.min_vm_memory_mib = config.min_vm_memory_mib or 96
  config.slurm_memory_mib = config.slurm_memory_mib or 64
  config.slurm_uid = config.slurm_uid or own_uid()

  local ours = {}
  for _, name in ipairs(config.partitions) do
    ours[name] = true
  end
  local function count_ours(names)
    local count = 0
    for _, name in ipairs(names) do
      count = count + (ours[name] and 1 or 0)
    end
    return count
  end

  -- Runs `check` for a job of ours, and turns what it raises into a message and a rejection.
  local function guarded(what, check)
    local done, problem = pcall(check)
    if done then
      return slurm.SUCCESS
    end
    if type(problem) == "table" and problem.refusal then
      slurm.log_user("%s", problem.refusal)
    else
      slurm.log_error("rmsplugin: %s: %s", what, tostring(problem))
      slurm.log_user("%s", "this job was refused because of a fault in the site's VM plugin, not in the job: tell the"
        .. " administrators, who find the reason in slurmctld's log")
    end
    return slurm.ERROR
  end

  local vjobs = {}

  function vjobs.submit(job_desc, part_list, _)
    local names = partitions_of(job_desc.partition, part_list)
    if count_ours(names) == 0 then
      return slurm.SUCCESS
    end
    return guarded("job_submit", function()
      if config.broken then
        error(config.broken)
      end
      check_config(config)
      if #names > 1 then
        refuse("a job that runs in VMs can be submitted to one partition only, not to %s", job_desc.partition)
      end
      check_options(job_desc)
      local image = image_of(job_desc, config)
      local geometry = geometry_of(job_desc, config)
      check_limits(geometry, config)
      wrap(job_desc, geometry, image, config)
    end)
  end

  function vjobs.modify(job_desc, job_rec, _, modify_uid)
    local was_ours = count_ours(partitions_of(job_rec.partition)) > 0
    local moves = text(job_desc.partition) and job_desc.partition ~= job_rec.partition
    if not was_ours and not (moves and count_ours(partitions_of(job_desc.partition)) > 0) then
      return slurm.SUCCESS
    end
    local result = guarded("job_modify", function()
      if moves then
        refuse("a job cannot be moved into, out of or between partitions whose jobs run in VMs: cancel it and submit it"
          .. " anew")
      end
      if modify_uid ~= 0 and modify_uid ~= config.slurm_uid then
        check_changes(job_desc, job_rec)
      end
    end)
    -- scontrol shows the code's words only, not the message (Slurm 22.05): these fit a refusal best.
    return result == slurm.SUCCESS and result or (slurm.ESLURM_ACCESS_DENIED or slurm.ERROR)
  end

  return vjobs
end

return rmsplugin
