"""``torch._C`` for programs that test for it."""
