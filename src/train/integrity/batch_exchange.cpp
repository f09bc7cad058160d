#include "src/train/integrity/batch_exchange.h"

#include <algorithm>
#include <span>

namespace carole::train {

BatchExchange::Numbers BatchExchange::NumbersOf(const CheckedBatch& checked) {
  return {.valid = checked.batch.valid,
          .max_valid = checked.batch.max_valid,
          .first_sample = checked.batch.first_sample,
          .row_weight = checked.row_weight};
}

void BatchExchange::Resize(const io::Batch& like) {
  images_.resize(like.images.size());
  pixels_.resize(like.pixels.size());
  labels_.resize(like.labels.size());
  soft_labels_.resize(like.soft_labels.size());
}

void BatchExchange::SetBatch() {
  received_ = {.batch = {.images = images_,
                         .pixels = pixels_,
                         .labels = labels_,
                         .soft_labels = soft_labels_,
                         .valid = numbers_.valid,
                         .max_valid = numbers_.max_valid,
                         .first_sample = numbers_.first_sample},
               .row_weight = numbers_.row_weight};
}

const CheckedBatch& BatchExchange::FromPreviousRank(collectives::Communicator& communicator,
                                                    const CheckedBatch& mine, int64_t step) {
  Resize(mine.batch);
  const Numbers numbers = NumbersOf(mine);
  const auto shift = [&](auto out, auto in) {
    if (!in.empty())
      communicator.Shift(std::as_bytes(out), std::as_writable_bytes(in),
                         {.what = "batch to check", .step = step});
  };
  shift(std::span(&numbers, 1), std::span(&numbers_, 1));
  shift(mine.batch.images, std::span(images_));
  shift(mine.batch.pixels, std::span(pixels_));
  shift(mine.batch.labels, std::span(labels_));
  shift(mine.batch.soft_labels, std::span(soft_labels_));
  SetBatch();
  return received_;
}

const CheckedBatch& BatchExchange::FromRank(collectives::Communicator& communicator, int rank,
                                            const CheckedBatch& mine, int64_t step) {
  Resize(mine.batch);
  const Numbers numbers = NumbersOf(mine);
  const auto broadcast = [&](auto from, auto to) {
    if (to.empty()) return;
    if (communicator.rank() == rank) std::ranges::copy(from, to.begin());
    communicator.Broadcast(std::as_writable_bytes(to), rank,
                           {.what = "batch to check", .step = step});
  };
  broadcast(std::span(&numbers, 1), std::span(&numbers_, 1));
  broadcast(mine.batch.images, std::span(images_));
  broadcast(mine.batch.pixels, std::span(pixels_));
  broadcast(mine.batch.labels, std::span(labels_));
  broadcast(mine.batch.soft_labels, std::span(soft_labels_));
  SetBatch();
  return received_;
}

}  // namespace carole::train
