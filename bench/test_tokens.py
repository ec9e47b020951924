"""Tests of `tokens.py`."""

import tempfile
import unittest
from pathlib import Path

import tokens


class Signatures(unittest.TestCase):
    def test_der_integers_become_32_bytes_each(self):
        # A number whose first bit is set has a zero before it; a small one has fewer bytes.
        large, small = bytes([0x80]) + bytes(31), bytes([5])
        der = bytes([0x30, 38, 2, 33, 0]) + large + bytes([2, 1]) + small
        self.assertEqual(tokens.plain_signature(der), large + bytes(31) + small)

    def test_tokens_have_three_parts_and_differ(self):
        made = tokens.hmac_tokens()
        self.assertEqual(len(set(made)), tokens.USERS)
        self.assertTrue(all(token.count(".") == 2 for token in made))

    def test_openssl_signs_what_is_64_bytes_long(self):
        tokens_made = tokens.USERS
        tokens.USERS = 3
        self.addCleanup(setattr, tokens, "USERS", tokens_made)
        with tempfile.TemporaryDirectory() as folder:
            made, public_key = tokens.es256_tokens(Path(folder))
        self.assertIn("BEGIN PUBLIC KEY", public_key)
        # 64 bytes are 86 characters of base64 without padding.
        self.assertEqual([len(token.split(".")[2]) for token in made], [86] * 3)


if __name__ == "__main__":
    unittest.main()
