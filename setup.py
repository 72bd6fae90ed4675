"The package, as settings.ini describes it."

from configparser import ConfigParser
from itertools import chain
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
# packages of one feature each; whoever works on the project takes them all
extras = {name: cfg[f"{name}_requirements"].split() for name in cfg["extras"].split()}
extras["dev"] = sorted({*cfg["dev_requirements"].split(), *chain(*extras.values())})

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    keywords=cfg["keywords"],
    author=cfg["author"],
    author_email=cfg["author_email"],
    license="Apache-2.0",
    packages=find_packages(include=["vssl_nb", "vssl_nb.*"]),
    package_data={"": ["py.typed", "*.csv", "*.html", "*.md"]},
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={
        "console_scripts": cfg["console_scripts"].split(),
        "nbdev": [f"{cfg['lib_name']}={cfg['lib_name']}._modidx:d"],
    },
    zip_safe=False,
)
