#include "src/train/step/gradient_hook.h"

#include <utility>

namespace carole::train {
namespace {

thread_local GradientHook gradient_hook;

}  // namespace

void SetGradientHook(GradientHook hook) { gradient_hook = std::move(hook); }

void CallGradientHook(VariableStore& store, int variable, int64_t step) {
  if (gradient_hook) gradient_hook(store, variable, step);
}

}  // namespace carole::train
