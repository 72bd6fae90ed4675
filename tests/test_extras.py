"Packages that one feature needs: the module where it is there, one sentence where it is missing."

import json
import sys

import pytest

from vssl_nb.extras import MissingPackage, require


def test_a_package_that_is_there_is_imported():
    assert require("json", "anything") is json
    assert require("os.path", "anything").join is not None


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "scipy.special", raising=False)
    with pytest.raises(MissingPackage, match=r"package scipy.*pip install 'vssl_nb\[notebooks\]'"):
        require("scipy.special", "notebooks")
    assert issubclass(MissingPackage, ValueError)  # one sentence of the command line
