// The confusion matrix of an evaluation, in files of its own.
#pragma once

#include <string>

#include "src/monitoring/report/report_page.h"
#include "src/train/evaluation/metrics.h"

namespace carole::monitoring {

// confusion.csv, .png and .html in a folder that is made when missing. Throws DiskError.
void WriteConfusion(const std::string& folder, const ConfusionFacts& facts,
                    const train::Metrics& metrics);

}  // namespace carole::monitoring
