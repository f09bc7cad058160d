// Writes the confusion matrix of an evaluation to separate files.
#pragma once

#include <string>

#include "src/monitoring/report/report_page.h"
#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// Writes confusion.csv, confusion.png and confusion.html to `folder`, which is created if missing.
// Throws DiskError if a file cannot be written.
void WriteConfusion(const std::string& folder, const ConfusionPageInfo& info,
                    const train::Metrics& metrics);

}  // namespace carole::monitoring
