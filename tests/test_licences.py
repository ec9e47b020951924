"""Licence expressions as crates write them."""

import unittest

from licences import faults, is_allowed

ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"}


class ExpressionTest(unittest.TestCase):
    def test_choices(self):
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "GPL-3.0 AND Zlib OR MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ]:
            self.assertTrue(is_allowed(expression, ALLOWED), expression)

    def test_demands(self):
        for expression in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR Apache-2.0) AND Zlib",
            "MIT AND (GPL-3.0 OR Zlib)",
            "GPL-2.0 WITH Classpath-exception-2.0",
        ]:
            self.assertFalse(is_allowed(expression, ALLOWED), expression)

    def test_nonsense_is_an_error(self):
        for expression in ["", "(MIT", "MIT MIT", "MIT OR"]:
            with self.assertRaises(ValueError, msg=expression):
                is_allowed(expression, ALLOWED)


class FaultTest(unittest.TestCase):
    def test_each_fault_names_the_crate(self):
        crate = {"name": "x", "version": "1.0.0", "license": "MIT", "source": None}
        self.assertEqual(list(faults(crate, ALLOWED)), [])
        for change in [{"license": None}, {"license": "GPL-3.0"}, {"source": "git+https://example.com/x"}]:
            (fault,) = faults({**crate, **change}, ALLOWED)
            self.assertTrue(fault.startswith("x 1.0.0: "), fault)


if __name__ == "__main__":
    unittest.main()
