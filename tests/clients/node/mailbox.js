// Values that come from outside, to wait for in their order.

export class Mailbox {
  #values = [];
  #waiting = [];
  #failure;

  put(value) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting.resolve(value);
    else this.#values.push(value);
  }

  // Nothing comes any more: whoever waits learns why.
  fail(error) {
    this.#failure = error;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
  }

  next() {
    if (this.#values.length > 0) return Promise.resolve(this.#values.shift());
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  async take(count) {
    const taken = [];
    while (taken.length < count) taken.push(await this.next());
    return taken;
  }

  // How many nobody has taken yet.
  get length() {
    return this.#values.length;
  }
}
