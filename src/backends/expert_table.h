// What a device that drives its experts by itself shares with the host: where each expert lies, and
// how to ask for those that are missing. Used by Backend::experts() on one side and by the streamer
// (experts/streamer.h) on the other.
//
// The table says for each expert of a bank where its planes lie, or that it is missing. The host
// writes it, only while the device waits for an answer or has nothing to do.
//
// The mailbox lies in memory that both reach. An operation that misses experts writes down all
// experts that it has not computed with yet, those it found in the table included, and raises
// `asked`. Until `answered` has the same value it reads nothing but the table's entries and the
// slots of experts on that list that were there; the host evicts none of them. So the device
// computes with what is there while the host reads. An answer brings one missing expert or more, or
// none where the slots of experts that are done are needed first: the device looks the table up
// again, and asks again while something is missing. Where `failed` is not 0 an operation ends at
// once and leaves its results undefined.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "backends/memory.h"

namespace moeflux {

// Offsets in the slots' buffer of gate, up and down.
struct ExpertPlace {
  struct Planes {
    std::uint64_t data = Weight::kNoPlane, scales = Weight::kNoPlane, biases = Weight::kNoPlane;
  };
  std::array<Planes, 3> matrices;

  bool missing() const { return matrices[0].data == Weight::kNoPlane; }
};

// Of one bank.
struct ExpertTable {
  const Buffer* slots = nullptr;
  Bytes places;           // ExpertPlace [n_experts], in memory that operations can read
  Weight gate, up, down;  // formats and shapes; the place of an expert adds where
  // Whether planes of codes lie at multiples of 4, and those of scales at multiples of their size,
  // in every expert.
  bool is_aligned = false;

  // An expert's matrices as operands.
  static Weight at(const Weight& shape, const Buffer* slots, const ExpertPlace::Planes& planes) {
    Weight weight = shape;
    weight.buffer = slots;
    weight.data = planes.data;
    weight.scales = planes.scales;
    weight.biases = planes.biases;
    return weight;
  }
};

// The list of experts follows it in memory: int32 [n_experts of the largest bank].
struct alignas(64) ExpertMailbox {
  std::atomic<std::uint32_t> asked;  // by the device: how often; raised when the rest is written
  std::int32_t bank;
  std::int32_t round;     // of the operation, from 0
  std::int32_t n_needed;  // at least one of them missing

  alignas(64) std::atomic<std::uint32_t> answered;  // by the host: the last request it is done with
  std::atomic<std::uint32_t> failed;                // by the host

  std::int32_t* needed() { return static_cast<std::int32_t*>(static_cast<void*>(this + 1)); }
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace moeflux
