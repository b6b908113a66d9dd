-- job_submit.lua: an example that works as it is. Slurm reads it from the directory of slurm.conf when slurm.conf says
-- JobSubmitPlugins=lua; rmsplugin.lua and rmsplugin_options.lua lie beside it, or in /usr/share/rmsplugin. A site that has
-- one already adds what is between the marks, and calls vjobs.submit and vjobs.modify last in its own functions.
--
-- The site's values are in /etc/rmsplugin/site.lua, which returns a table; see rmsplugin.new in rmsplugin.lua for the keys:
--
--   return {
--     partitions = { "vjob" },
--     wrapper = "/opt/rmsplugin/bin/rmsplugin-job",
--     max_vm_cpus = 32,
--     max_vm_memory_mib = 180000,
--     image_memory_mib = { default = 16 },  -- 96 where the settings have no overhead_mib
--   }
--
-- slurmctld reads both files again when this one has changed, or when it is restarted.

-- >>> rmsplugin
local here = string.match(debug.getinfo(1, "S").source, "^@(.*/)") or "/etc/slurm/"
package.path = here .. "?.lua;/etc/slurm/?.lua;/usr/share/rmsplugin/?.lua;" .. package.path

local site_file = "/etc/rmsplugin/site.lua"
local site = { partitions = { "vjob" }, wrapper = "/usr/bin/rmsplugin-job" }
local file = io.open(site_file, "r")
if file ~= nil then
  file:close()
  local read, value = pcall(dofile, site_file)
  if read and type(value) == "table" and type(value.partitions) == "table" then
    site = value
  else
    -- Not raised: that would refuse the jobs of all partitions.
    site.broken = site_file .. " cannot be used: " .. (read and "it has to return a table with `partitions`" or value)
  end
end

local loaded, rmsplugin = pcall(require, "rmsplugin")
local vjobs
if loaded then
  vjobs = rmsplugin.new(site)
else
  -- Without the module nothing can be wrapped, and what is not wrapped must not run in a vjob partition.
  slurm.log_error("rmsplugin: jobs of vjob partitions are refused: %s", tostring(rmsplugin))
  local function refuse(partition)
    for _, name in ipairs(site.partitions) do
      if string.find("," .. (partition or "") .. ",", "," .. name .. ",", 1, true) then
        slurm.log_user("jobs that run in VMs are refused: the plugin's Lua files cannot be read; tell the administrators")
        return slurm.ERROR
      end
    end
    return slurm.SUCCESS
  end
  vjobs = {
    submit = function(job_desc, part_list)
      local default
      for name, part in pairs(part_list) do
        default = part.flag_default == 1 and name or default
      end
      return refuse(job_desc.partition or default)
    end,
    modify = function(job_desc)
      return refuse(job_desc.partition)
    end,
  }
end
-- <<< rmsplugin

function slurm_job_submit(job_desc, part_list, submit_uid)
  return vjobs.submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return vjobs.modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
