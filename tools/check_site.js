// What tools/check_site.py asks of a page in the browser.

// What reaches out of its frame, pictures that are not there, and what came from elsewhere than the disk.
function measure(view) {
  const page = view.document;
  const width = page.documentElement.clientWidth;
  const found = [];
  const named = (one) => [one.tagName.toLowerCase(), ...one.classList].join(".");
  // A wide thing may stand in a frame that scrolls and does not reach out itself.
  const holds = (frame) =>
    ["auto", "scroll"].includes(view.getComputedStyle(frame).overflowX) &&
    frame.getBoundingClientRect().right <= width + 1;
  const held = (one) => {
    let frame = one.parentElement;
    while (frame && !holds(frame)) frame = frame.parentElement;
    return frame;
  };
  if (page.documentElement.scrollWidth > width) found.push(`the page is ${page.documentElement.scrollWidth} wide`);
  for (const one of page.querySelectorAll(".md-content *, .md-header *, .md-footer *")) {
    const place = one.getBoundingClientRect();
    const inside = place.right <= width + 1 && place.left >= -1;
    if (!place.width || !place.height || inside || held(one)) continue;
    if (view.getComputedStyle(one).visibility === "hidden") continue;
    if (one.closest(".md-search, .md-header__title, svg > *")) continue; // slide in when they are asked for
    found.push(`${named(one)} reaches to ${Math.round(place.right)}: ${one.textContent.trim().slice(0, 60)}`);
  }
  for (const one of page.images) {
    if (one.complete && !one.naturalWidth) found.push(`no picture at ${one.getAttribute("src")}`);
  }
  for (const one of view.performance.getEntriesByType("resource")) {
    if (!/^(file|data|blob):/.test(one.name)) found.push(`loads ${one.name}`);
  }
  return found;
}

// One window visits all pages, each in a frame as wide as a phone.
async function tour(pages, width, height) {
  const frame = document.createElement("iframe");
  Object.assign(frame, { width, height });
  frame.style.border = 0;
  document.body.append(frame);
  const faults = {};
  for (const page of pages) {
    await new Promise((done) => {
      frame.onload = () => setTimeout(done, 50);
      frame.src = page;
    });
    faults[page] = measure(frame.contentWindow);
  }
  say(faults);
}

// Type a word into the search, and wait for what it finds.
async function search(word) {
  const field = document.querySelector(".md-search__input");
  field.focus();
  field.value = word;
  let found = [];
  for (let attempt = 0; attempt < 100 && !found.length; attempt++) {
    field.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
    await new Promise((done) => setTimeout(done, 100));
    found = [...document.querySelectorAll(".md-search-result__item a")].map((one) => one.getAttribute("href"));
  }
  say(found);
}

function say(what) {
  const place = document.createElement("pre");
  place.id = "said";
  place.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(what))));
  document.body.append(place);
}
