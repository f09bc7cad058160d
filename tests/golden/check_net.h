// Everything that a golden file records about a net, compared with what a backend computes.
#pragma once

#include <nlohmann/json.hpp>

#include "nets/nets.h"
#include "src/backend/backend.h"
#include "tests/golden/report.h"

namespace carole::golden {

// Variables, parameter counts and end points: exactly. No kernel runs.
void CheckStructure(const nets::NetEntry& net, const nlohmann::json& golden);

// Logits, end points, losses, gradients and moving statistics, to the bounds of `report`.
void CheckNumbers(const nets::NetEntry& net, const nlohmann::json& golden, const Backend& backend,
                  DType compute, Report& report);

// False where the file has single-precision values only.
bool HasDoubles(const nlohmann::json& golden);

// Puts each fp32 value of such a file into the place of the double as well.
void TakeSinglesForDoubles(nlohmann::json& golden);

}  // namespace carole::golden
