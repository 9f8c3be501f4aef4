-- Health of a PluginCapabilityApproval. Only what speaks of the version that is
-- there counts: a condition of an older generation says nothing about it.
local health = {status = "Progressing", message = "waiting for plugin-host"}
local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation or status.conditions == nil then
  return health
end
local conditions = {}
for _, condition in ipairs(status.conditions) do
  if condition.observedGeneration == obj.metadata.generation then
    conditions[condition.type] = condition
  end
end
local fenced, review, ready = conditions.Fenced, conditions.ReviewRequired, conditions.Ready
if review ~= nil and review.status == "True" then
  health.status, health.message = "Degraded", review.reason .. ": " .. (review.message or "")
elseif fenced == nil or ready == nil or fenced.status ~= "True" and fenced.reason == "Fencing" then
  health.message = fenced ~= nil and fenced.message or health.message
elseif ready.status == "True" then
  health.status, health.message = "Healthy", ready.message or ""
elseif obj.spec.state == "Revoked" then
  -- What was asked for: nothing is granted.
  health.status, health.message = "Healthy", "revoked"
elseif ready.reason == "Suspended" then
  health.status, health.message = "Suspended", ready.message or ""
else
  health.status, health.message = "Degraded", ready.reason .. ": " .. (ready.message or "")
end
return health
