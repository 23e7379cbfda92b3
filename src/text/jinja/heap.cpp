#include "text/jinja/heap.h"

namespace moeflux::jinja {

void Object::release() noexcept {
  if (--references_ == 0) heap_.bury(this);
}

void Heap::link(Object* object) noexcept {
  object->next_ = live_;
  if (live_ != nullptr) live_->previous_ = object;
  live_ = object;
}

void Heap::bury(Object* object) noexcept {
  if (object->previous_ != nullptr) object->previous_->next_ = object->next_;
  if (object->next_ != nullptr) object->next_->previous_ = object->previous_;
  if (live_ == object) live_ = object->next_;

  object->next_ = dying_;
  dying_ = object;
  if (burying_) return;  // an outer call is emptying the queue
  burying_ = true;
  while (dying_ != nullptr) {
    Object* const next = dying_;
    dying_ = next->next_;
    delete next;
  }
  burying_ = false;
}

Heap::~Heap() {
  for (Object* object = live_; object != nullptr; object = object->next_) object->retain();
  for (Object* object = live_; object != nullptr; object = object->next_) object->drop_children();
  while (live_ != nullptr) live_->release();
}

}  // namespace moeflux::jinja
