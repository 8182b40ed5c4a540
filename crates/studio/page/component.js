// The studio's sections in another page, within an element. The files beside this one belong to it.
//
//     const { open } = await import('./component.js');
//     open(element, { events: async after => ..., ask: async what => ..., asks: ['profile'] });
import { follow, mount } from './studio.js';

const beside = name => new URL(name, import.meta.url);

// Shows the sections in an element, fed by a source: see `mount` and `follow`. A page has one such element.
async function open(element, source) {
  const answer = await fetch(beside('sections.html'));
  if (!answer.ok) throw new Error('sections.html cannot be loaded (' + answer.status + ')');
  const root = element.attachShadow({ mode: 'open' }), style = document.createElement('link');
  root.innerHTML = await answer.text();
  Object.assign(style, { rel: 'stylesheet', href: beside('studio.css') });
  root.prepend(style);
  // Addresses do not lead into an element's own tree.
  for (const link of root.querySelectorAll('nav a')) {
    link.addEventListener('click', event => { event.preventDefault(); root.querySelector(link.getAttribute('href')).scrollIntoView(); });
  }
  mount(root, source);
  await follow();
}

export { open };
