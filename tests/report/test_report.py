"""The folder of a fit: tables with intervals, pictures, and the page in a browser."""

import re
import shutil

import arviz as az
import numpy as np
import pandas as pd
import pytest

import nbmf_jax as nbmf
from nbmf_jax.posterior.convert import with_
from nbmf_jax.report import write_results
from nbmf_jax.report.tables import (
    component_list,
    hyperparameters,
    main_components,
    surprising,
)
from nbmf_jax.report.view import view_of
from nbmf_jax.report.words import model_words

ANSWERS = ["found", "cells", "sure"]
FOLDED = ["components", "reconstruction", "diagnostics", "model", "reproduce"]
NAMES = "<b>odd & names</b>"


@pytest.fixture(scope="module")
def folder(fitted, tmp_path_factory):
    path = tmp_path_factory.mktemp("results")
    write_results(fitted, path, name=NAMES, command="nbmf fit odd.csv --seed 0")
    return path


@pytest.fixture(scope="module")
def view(fitted):
    return view_of(fitted)


# --- tables


def test_files(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["posterior.nc", "W.csv", "H.csv", "expected.csv", "diagnostics.csv", "report.html"]
        + [
            f"{name}.png"
            for name in ("table", "W", "H", "sizes", "reconstruction", "blanks", "chains")
        ]
    )


def test_factors_have_means_and_intervals(folder, fitted, view):
    W, H = (pd.read_csv(folder / name, index_col=0) for name in ("W.csv", "H.csv"))
    used = [f"component {k}" for k in view.used]
    np.testing.assert_allclose(W[used], fitted.W_[used], rtol=1e-4)
    np.testing.assert_allclose(H.loc[used], fitted.H_.loc[used], rtol=1e-4)
    assert W.index.name == "animal" and list(H.columns) == list(fitted.H_.columns)
    draws = np.asarray(fitted.idata_.posterior["W"])[:, :, 2, view.used[0]].ravel()
    name = used[0]
    found = W.iloc[2][[f"{name} lower", f"{name} upper"]]
    np.testing.assert_allclose(found, np.quantile(draws, [0.05, 0.95]), rtol=1e-3)
    assert (H.loc[f"{name} lower"] <= H.loc[f"{name} upper"]).all()


def test_expected_has_one_line_a_cell(folder, fitted, blocks):
    table = pd.read_csv(folder / "expected.csv")
    columns = ["animal", "trait", "observed", "mean", "lower", "upper", "standard_error"]
    assert list(table.columns) == columns
    errors = fitted.standard_error_.to_numpy().ravel()
    np.testing.assert_allclose(table["standard_error"], errors, rtol=1e-4)
    wide = table.pivot(index="animal", columns="trait", values="mean")
    np.testing.assert_allclose(wide.loc[blocks.index, blocks.columns], fitted.expected_, rtol=1e-4)
    observed = table.pivot(index="animal", columns="trait", values="observed")
    np.testing.assert_array_equal(observed.loc[blocks.index, blocks.columns], blocks)
    assert (table["lower"] < table["mean"]).all() and (table["mean"] < table["upper"]).all()


def test_posterior_file_explains_itself(folder, fitted):
    idata = az.from_netcdf(folder / "posterior.nc")
    assert idata.posterior.attrs["seed"] == "0" and "nbmf fit" in idata.posterior.attrs["command"]
    np.testing.assert_array_equal(idata.posterior["W"], fitted.idata_.posterior["W"])


def test_components_lead_with_what_is_theirs(view, blocks):
    first, second = component_list(view)[:2]
    labels = [{entry.label for entry in component.rows} for component in (first, second)]
    groups = [{f"animal {i}" for i in part} for part in (range(6), range(6, 12))]
    assert max(len(labels[0] & groups[0]), len(labels[0] & groups[1])) >= 4
    assert first.lower <= first.share <= first.upper and first.share >= second.share
    for entry in first.columns:
        assert entry.value > entry.overall


def test_surprising_cells(view, blocks):
    table = surprising(view, 3)
    assert (np.diff(table["likelihood"]) >= 0).all() and table["observed"].notna().all()
    p = np.exp(view.left_out.to_numpy()[view.data.mask])
    np.testing.assert_allclose(table["likelihood"], np.sort(p)[:3])


def test_learned_hyperparameters_are_shown(fitted):
    posterior = fitted.idata_["posterior"]
    shape = posterior["W"].shape[:2]
    alpha = np.linspace(0, 1, np.prod(shape)).reshape(shape)
    learned = posterior.assign(
        alpha=(("chain", "draw"), alpha),
        base_weights=(("chain", "draw", "component"), np.full((*shape, 3), 0.25)),
    )
    view = view_of(fitted)
    assert hyperparameters(view).empty

    class Learned:
        idata_ = with_(fitted.idata_, posterior=learned)

    table = hyperparameters(view._replace(estimator=Learned()))
    np.testing.assert_allclose(table.loc["alpha"], [0.5, 0.05, 0.95], atol=1e-6)
    assert table.loc["base_weights, component 0", "mean"] == 0.25


def test_models_in_words():
    from numpyro.distributions import Gamma

    assert "1/4" in model_words(nbmf.BetaDir(4)).priors[0]
    learned = model_words(nbmf.BetaDir(4, alpha=Gamma(1.0, 2.0), gamma=nbmf.HDP())).priors
    assert any("learned, prior Gamma(1, 2)" in line for line in learned)
    assert any("learned, prior HDP" in line for line in learned)
    given = model_words(nbmf.DirDir(2, eta=[1.0, 3.0]))
    assert given.title == "Dir-Dir" and "2 numbers between 1 and 3" in given.priors[1]
    assert "column" in model_words(nbmf.DirBeta(3)).story


@pytest.mark.parametrize("method", ["em", "cvb0"])
def test_fits_without_chains(blocks, tmp_path, method):
    fit = nbmf.NBMF(2, method=method, max_iter=20, n_init=1, n_samples=10, random_state=0)
    write_results(fit.fit(blocks.fillna(0)), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert (tmp_path / "convergence.png").exists() and "No cell is blank" in page
    assert len(pd.read_csv(tmp_path / "diagnostics.csv")) == fit.n_iter_
    expected = pd.read_csv(tmp_path / "expected.csv")
    assert expected["lower"].isna().all() == (method == "em")
    assert expected["standard_error"].isna().all()


# --- the page


def test_page_needs_nothing_else(folder):
    page = (folder / "report.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources and all(source.startswith(("data:", "#")) for source in sources)
    assert "http" not in page
    assert NAMES not in page and "&lt;b&gt;odd &amp; names" in page
    assert "nbmf fit odd.csv --seed 0" in page and "numpyro" in page


def test_answers_come_first(folder):
    page = (folder / "report.html").read_text()
    places = [page.index(f'id="{name}"') for name in ANSWERS + FOLDED]
    assert places == sorted(places) and page.count("<details") == len(FOLDED)


def test_page_tells_what_the_fit_found(folder, fitted, view):
    page = (folder / "report.html").read_text()
    for component in component_list(view):
        share = f"{100 * component.share:.0f} % of the cells): rows such as"
        assert f"<b>Component {component.number}</b> ({share} {component.rows[0].label}" in page
    assert fitted.verdict_ in page.replace("&#39;", "'") and f"seed {fitted.seed_}." in page


def test_main_components_are_the_strongest(view):
    rows, columns = main_components(view)
    largest = view.used[view.W.to_numpy()[:, view.used].argmax(1)]
    np.testing.assert_array_equal(rows["component"], largest)
    assert len(columns) == view.data.shape[1] and columns["component"].isin(view.used).all()


def test_large_page_is_small(tmp_path):
    rng = np.random.default_rng(0)
    V = (rng.random((285, 1226)) < 0.05).astype(float)
    V[rng.random(V.shape) < 0.05] = np.nan
    fit = nbmf.NBMF(5, method="em", max_iter=3, n_init=1, random_state=0).fit(V)
    write_results(fit, tmp_path)
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_notebooks_show_the_estimator():
    assert "NBMF" in nbmf.NBMF()._repr_html_()


def browser_or_skip():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("no chromium and chromedriver; on Debian: apt-get install chromium-driver")
    pytest.importorskip("selenium")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "disable-quic",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@pytest.fixture(scope="module")
def browser():
    driver = browser_or_skip()
    yield driver
    driver.quit()


@pytest.mark.parametrize("width", [400, 1400])
def test_page_in_a_browser(browser, folder, width):
    # A window is never narrower than about 500 pixels; the metrics of the page are.
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get((folder / "report.html").as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.innerWidth") == width
    for section in ANSWERS:
        found = browser.find_element("id", section)
        assert found.is_displayed() and len(found.text) > 40, section
    for section in FOLDED:
        found = browser.find_element("id", section)
        assert found.get_attribute("open") is None
        browser.execute_script("arguments[0].open = true", found)
        assert len(found.text) > 40, section
    images = browser.execute_script(
        "return [...document.images].map(x => [x.complete, x.naturalWidth, x.clientWidth])"
    )
    assert len(images) == 7
    assert all(done and natural > 300 and shown > 250 for done, natural, shown in images)
    # The page itself is never wider than the screen, and its text is of a size to be read.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    size = browser.execute_script(
        "return Math.min(...[...document.querySelectorAll('p,td,th,li,figcaption')]"
        ".map(x => parseFloat(getComputedStyle(x).fontSize)))"
    )
    assert size >= 13
